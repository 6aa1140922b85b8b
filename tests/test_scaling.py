"""What notebook 13 measures and shows: real processes where there is MPI, a simulation in their place, and figures."""

import itertools
import json
import os
import re
import time
from pathlib import Path

import figures
import numpy as np
import pytest
from processes import is_running, until

from nnclassroom import recorded_words
from nnclassroom.exercises.catalogue import find
from nnclassroom.figures import nb13, overheads, recorded
from nncourse.errors import CourseError
from nncourse.parallel import scaling as measuring
from nncourse.parallel.energy import Meter
from nncourse.parallel.launch.together import together
from nncourse.parallel.simulation import Link, ring_seconds, tree_seconds

NEEDS_MPI = pytest.mark.skipif(bool(nb13.why_no_processes()), reason=nb13.why_no_processes() or "there is MPI")


def assert_whole(shown) -> None:
    """A figure with words that can be drawn, with labels, and everything on its page."""
    assert len(shown.words.split()) > 5
    figures.assert_whole(shown.figure, any)


def fails(group, why: str) -> None:
    if group.rank == 1:
        raise CourseError(why) if why else ZeroDivisionError("by 0")
    group.barrier()


def waits(group, folder: str) -> None:
    (Path(folder) / str(group.rank)).write_text(str(os.getpid()))
    time.sleep(100)


@NEEDS_MPI
@pytest.mark.full
def test_a_member_that_fails_is_named_and_one_that_never_ends_is_stopped(tmp_path):
    with pytest.raises(CourseError, match="rank 1: expected more"):
        together(fails, 2, why="expected more")
    with pytest.raises(CourseError, match="rank 1: ZeroDivisionError: by 0"):
        together(fails, 2, why="")
    for limit in (3, 12, 50):  # until both have begun before they are stopped
        with pytest.raises(CourseError, match=f"within {limit} s; they were stopped"):
            together(waits, 2, limit=limit, folder=str(tmp_path))
        pids = [int(file.read_text()) for file in tmp_path.iterdir()]
        if len(pids) == 2:
            break
    assert len(pids) == 2
    assert until(lambda: not any(map(is_running, pids)), 5)
    with pytest.raises(CourseError, match="from 1 to"):
        together(fails, 0, why="")


@NEEDS_MPI
@pytest.mark.full
def test_two_processes_are_measured():
    steps = nb13.measure_steps([8], [8, 16], rounds=3, seconds=0.002, sizes=(20, 10, 3))
    assert set(steps.alone) == {8} and set(steps.together) == set(steps.exchange) == {8, 16}
    assert all(len(seconds) == 3 and min(seconds) > 0 for seconds in (*steps.alone.values(), *steps.together.values()))
    for batch, seconds in steps.together.items():
        assert all(part < whole for part, whole in zip(steps.exchange[batch], seconds, strict=True))
    assert steps.source.startswith("measured here")
    assert_whole(nb13.plot_steps(steps))
    messages, source = nb13.measure_messages([4, 4096], rounds=2)
    assert source == "measured here" and min(map(min, messages.values())) > 0
    assert_whole(nb13.plot_messages(messages, Link(1e-6, 1e9)))
    assert 0 < nb13.measure_all_reduce(4096) < 1


def test_without_mpi_the_second_process_is_simulated_and_said_to_be(monkeypatch):
    def none() -> None:
        raise CourseError("expected mpi4py, found none")

    monkeypatch.setattr(nb13.start, "refuse_without_mpi", none)
    steps = nb13.measure_steps([8], [8, 64], rounds=2, seconds=0.002, sizes=(20, 10, 3))
    assert "simulated: expected mpi4py" in steps.source
    assert steps.simulated
    assert len(steps.together[64]) == len(steps.alone[8]) == 2 and set(steps.alone) == {8}
    assert steps.exchange[8][0] == pytest.approx(ring_seconds(nb13.MADE_UP, nb13.GRADIENT, 2))
    assert_whole(nb13.plot_steps(steps))
    assert nb13.measure_messages([4, 64])[1].startswith("made up: ")
    assert nb13.measure_all_reduce(4096) == ring_seconds(nb13.MADE_UP, 4096, 2)


def test_a_speedup_above_the_ideal_stays_on_the_figure():
    alone, together = {64: [3.0], 1024: [9.0]}, {64: [2.0], 128: [3.0], 1024: [3.0], 2048: [9.0]}
    steps = nb13.Steps(alone, together, {batch: [1.0] for batch in together}, 2, "made up")
    assert nb13.plot_steps(steps).figure.axes[0].get_ylim()[1] > 3


def test_an_mpi4py_that_cannot_be_imported_counts_as_none(monkeypatch, tmp_path):
    (tmp_path / "mpi4py.py").write_text("raise ImportError('no libmpi.so')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name in ("refuse_without_mpi", "find_mpiexec"):
        monkeypatch.setattr(nb13.start, name, str)  # they find what they look for
    nb13._import_error.cache_clear()
    try:
        assert nb13.why_no_processes().endswith("cannot be imported: ImportError: no libmpi.so")
    finally:
        nb13._import_error.cache_clear()


def test_a_neighbour_ends_with_its_block():
    with pytest.raises(KeyError), measuring.neighbour() as process:
        assert process.poll() is None
        raise KeyError
    assert process.poll() is not None


def test_simulated_steps_are_work_and_exchange_and_the_slowest_counts():
    link, work = Link(1e-5, 1e9), lambda rows: 1e-3 + 1e-5 * rows
    assert measuring.simulated_step(1, 64, work, 4000, link) == pytest.approx(1e-3 + 64e-5)
    two = measuring.simulated_step(2, 64, work, 4000, link)
    assert two == pytest.approx(1e-3 + 32e-5 + ring_seconds(link, 4000, 2))
    noisy = [measuring.simulated_step(K, 8 * K, work, 4000, link, (1.0, 1.0, 1.0, 3.0)) for K in (1, 4, 256)]
    assert 1.08e-3 < noisy[0] < noisy[1] < noisy[2]  # not in each step one of 4 members draws 3.0
    assert noisy[2] == pytest.approx(3 * 1.08e-3 + tree_seconds(link, 4000, 256))


def test_the_example_of_power_has_the_energy_it_says():
    fine = np.arange(0, 9.3, 1e-4) + 5e-5
    assert nb13.example_power(fine).sum() * 1e-4 == pytest.approx(nb13.example_joules(9.3), rel=1e-6)
    t = np.arange(43, dtype=np.float32) * 0.25
    P = nb13.example_power(t + 1e-6)[None].astype(np.float32)
    E, _, _ = find("energy_and_edp")["numpy"](t, P, np.zeros(1, np.float32))
    assert E[0] == pytest.approx(nb13.example_joules(10.5), rel=1e-6)
    assert_whole(nb13.plot_power(t, P))


def test_fits_follow_the_fastest_of_several_tries(monkeypatch):
    """A busy machine makes single tries longer, never shorter."""
    link = Link(1e-3, 1e6)  # of a step: 1 ms, and 1e6 rows a second
    runs = {rows: [5.0, link.seconds(rows), 3 * link.seconds(rows)] for rows in (100, 1000, 5000)}
    fitted = nb13.fit_steps(runs)
    assert (fitted.latency, fitted.bandwidth) == pytest.approx((1e-3, 1e6))
    tries = itertools.count()

    def seconds(work, *arguments, pick, **options):
        work()
        busy = next(tries) // 28 != 1  # of three rounds of 28 the second is quiet
        return pick([9.0, 2e-3 if busy else 1e-5])

    monkeypatch.setattr(overheads.devices, "to_device", lambda array, device: array)
    monkeypatch.setattr(overheads.devices, "synchronise", lambda device: None)
    monkeypatch.setattr(overheads.devices, "seconds", seconds)
    assert {trip[way] for trip in overheads.transfers() for way in ("there", "back")} == {1e-5}
    assert next(tries) == 3 * 28


def test_energy_by_counters_or_said_not_to_be_measurable(monkeypatch):
    monkeypatch.setattr(nb13.energy, "meters_here", lambda: ([], ["energy of GPUs: not measurable here"]))
    assert nb13.own_energy(lambda: None) == ["energy of GPUs: not measurable here"]
    start = time.monotonic()
    counter = Meter("a meter", "gpu", lambda: 100 * (time.monotonic() - start))
    monkeypatch.setattr(nb13.energy, "meters_here", lambda: ([counter], []))
    monkeypatch.setattr(nb13.energy, "idle_power", lambda meters: [40.0])
    first, second = nb13.own_energy(lambda: time.sleep(0.01), least=0.1)
    assert first.startswith("a meter: ") and "above idle" in first and second.startswith("EDP ")


def test_figures_of_runs_and_lines():
    shown = nb13.plot_runs({"one": [1e-3, 2e-3, 9e-3], "two": [3e-3]}, "title")
    assert_whole(shown)
    assert "one: median 2 ms, from 1 to 9" in shown.words
    shown = nb13.plot_lines({"a": ([1, 4], [1, 3.5])}, "devices", "speedup", simulated=True)
    assert_whole(shown)
    assert shown.words.startswith("Simulated.") and "3.5 at 4" in shown.words


def test_what_has_words_is_recorded():
    texts = [path.read_text("utf-8") for path in sorted(overheads.RESULTS.glob("*.json"))]
    recorded = {value for text in texts for value in _strings(json.loads(text))}
    assert not recorded_words.WORDS.keys() - recorded
    assert recorded_words.in_words("convolution_forward") == "convolution_forward"


def _strings(value):
    """All strings in what JSON holds, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in [*value, *(value.values() if isinstance(value, dict) else ())]:
            yield from _strings(each)


def test_recorded_results_with_machine_and_date_or_a_line_that_there_are_none(tmp_path, monkeypatch):
    monkeypatch.setattr(overheads, "RESULTS", tmp_path)
    overheads.recorded.cache_clear()
    for text in (recorded.training_on_cpu(), recorded.small_networks()):
        assert "not recorded yet" in text and "\n" not in text
    overheads.recorded.cache_clear()
    head = {"machine": "A machine, 2 cores", "date": "2026-11-22"}
    seconds = {"256": {"one process": [1.0, 1.2, 1.0], "2 processes": [2.0, 1.0, 1.25]}}
    on_cpu = head | {"sizes": [784, 192, 10], "processes": 2, "seconds": seconds, "exchange": [1e-4]}
    (tmp_path / "devices_cpu.json").write_text(json.dumps(on_cpu))
    lines = recorded.training_on_cpu().splitlines()
    assert re.search(r"256 .* 0\.80 +0\.50 to 1\.20", lines[1]) and lines[-1] == "recorded, A machine, 2026-11-22"
    overheads.recorded.cache_clear()


def test_what_an_exchange_takes_of_a_recorded_step_is_as_predicted():
    yours = Link(3e-4, 2e5), Link(2e-6, 1e10)
    found = nb13.exchanges(*yours)
    (first, mine), (other, (step, link)) = found.items()
    assert first == ("your processes", 2) and mine == yours and other == ("recorded GPUs", 4)
    measured = {rows: 1 - recorded.shared_steps()[1][rows] / recorded.shared_steps()[4][rows] for rows in (256, 1024)}
    for rows, share in measured.items():
        exchange = ring_seconds(link, nb13.GRADIENT, 4)
        assert 0.6 < exchange / (exchange + step.seconds(rows)) / share < 1.1
    assert [line.split()[0] for line in recorded.exchange_on_gpus().splitlines()[2:5]] == ["64", "256", "1,024"]


def test_without_records_only_your_own_exchange_is_known(results):
    assert list(nb13.exchanges(Link(1, 1), Link(1, 1))) == [("your processes", 2)]
    assert recorded.exchange_on_gpus().startswith("not recorded yet")
