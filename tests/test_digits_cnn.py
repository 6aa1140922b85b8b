"""The digits CNN of notebook 11: fused epochs without costs, and the table of implementations."""

import numpy as np
import pytest

from nnclassroom.figures import nb11
from nncourse.backend import choose
from nncourse.model.network import make_network
from nncourse.model.optimizers import Adam
from nncourse.model.training import train


@pytest.fixture
def small(rng):
    """A network for small images, and 70 of them: two batches, and a short one."""
    X = rng.standard_normal((70, 1, 6, 6), dtype=np.float32)
    Y = np.eye(3, dtype=np.float32)[rng.integers(0, 3, 70)]

    def network():
        return make_network("image1x6x6,conv2x2same,pool2,3", "relu", "categorical_cross_entropy", seed=4)

    return network, X, Y


def test_an_epoch_is_that_of_train(small):
    network, X, Y = small
    backend, one, other = choose("numpy"), network(), network()
    history = train(other, X, Y, backend, epochs=3, batch_size=32, learning_rate=0.01, optimizer=Adam(), seed=5)
    learning = nb11.epochs(one, X, Y, backend, rate=0.01, seed=5)
    assert all(next(learning) > 0 for _ in range(3))
    assert history.plan == "numpy" and np.array_equal(one.flat_parameters, other.flat_parameters)


def test_what_was_recorded_is_read_with_machine_and_date(results):
    cpu = {"machine": "A processor, 2 cores", "date": "2026-11-22"}
    cpu["seconds"] = {"step digits CNN, batch 32": {"nncourse numba, fused": [3e-4, 2e-4, 4e-4]}, "step 784-30-10": {}}
    gpu = {"machine": "A chip, 99 multiprocessors", "date": "2026-11-23", "tables": {}}
    step = {"contender": "JAX scan", "seconds_a_step": 1e-4}
    gpu["tables"]["epochs"] = [{"network": "digits CNN", "accuracy": 0.95, **step}, {"network": "784-30-10", **step}]
    results("cpu", cpu)
    results("gpu", gpu)
    rows = nb11.recorded()
    found = [(row.name, round(row.seconds, 4), row.accuracy) for row in rows]
    assert found == [("nncourse numba, fused", 0.4689, None), ("JAX scan", 0.1563, 0.95)]
    assert rows[0].where == "A processor, one thread, 2026-11-22" and rows[1].where == "A chip, 2026-11-23"


def test_the_table_is_in_order_and_tells_times_and_the_speed_beside_the_projects_numpy():
    rows = [nb11.PROJECT[0], nb11.Row("slow", "here", 14682), nb11.Row("fast", "here", 0.017)]
    speeds = [line.split("×")[0].split()[-1] for line in nb11.table(rows).splitlines()[1:]]
    assert speeds == ["0.5", "1", "431,824"]
    lines = nb11.table([*reversed(nb11.PROJECT), nb11.Row("loops", "here", 3 * 3600 - 1)]).splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == ["loops", *(row.name for row in nb11.PROJECT)]
    assert "3 h 00 min" in lines[1] and "2 h 02 min" in lines[2] and "1 h 17 min" in lines[3]
    assert "38 s" in lines[4] and "94.85%" in lines[4] and "94.91%" in lines[5]


def test_what_is_misread_is_plotted_in_percent():
    figure = nb11.plot_misread([0.04, 0.025], [30, 60], "title")
    (line,) = figure.axes[0].get_lines()
    assert line.get_xydata().tolist() == [[30, 4], [60, 2.5]]
    assert figure.axes[0].get_ylim()[0] == 0 and figure.axes[0].get_ylim()[1] > 4
    assert figure.words == "title. Test digits read wrongly after epochs 30, 60: 4.0%, 2.5%."
