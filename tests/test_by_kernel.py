"""Groups whose sums are computed by a student's kernel; over MPI, a group whose members do not wait for ever."""

import time

import numpy as np
import pytest
from exercise_operations import ALL_SEND_FIRST, all_reduce_of, text_of
from processes import in_processes

from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.kept_kernels import own_all_reduce
from nnclassroom.exercises.nb12 import all_reduce
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.group import ALONE
from nncourse.model.data_parallel import Together
from nncourse.model.network import make_network
from nncourse.model.training import train
from nncourse.parallel.by_kernel import ByKernel
from nncourse.parallel.simulation import simulate


def learn(group):
    rng = np.random.default_rng(2)
    X, Y = rng.standard_normal((43, 6), dtype=np.float32), np.eye(3, dtype=np.float32)[rng.integers(0, 3, 43)]
    network = make_network((6, 8, 3), "tanh", "categorical_cross_entropy", seed=group.rank)
    train(network, X, Y, choose("numpy"), epochs=2, batch_size=10, together=Together(group))
    return network.flat_parameters


@pytest.mark.parametrize("kernel", all_reduce.kernels)
def test_a_network_learns_by_each_all_reduce_as_on_one_device(kernel):
    def part(group):
        own = ByKernel(group, all_reduce[kernel])
        return learn(own), own.sums

    for parameters, sums in simulate(part, 3).results:
        np.testing.assert_allclose(parameters, learn(ALONE), atol=1e-5)
        assert sums == 10  # one for each batch
    with pytest.raises(AttributeError):
        _ = ByKernel(ALONE, all_reduce[kernel]).next_sender  # what the group itself lacks


def test_the_kernel_adds_float32_and_the_group_adds_costs():
    def doubled(group, vector):
        group.all_reduce(vector)
        vector *= 2

    def part(group):
        sums = [np.ones(3, np.float32), np.ones(3)]
        for vector in sums:
            ByKernel(group, doubled).all_reduce(vector)
        return [float(vector[0]) for vector in sums]

    assert simulate(part, 2).results == [[4, 2], [4, 2]]


def test_a_kept_ring_comes_before_a_root_and_what_is_wrong_now_is_not_taken(my_kernels):
    assert own_all_reduce() == (all_reduce["ring"], "the course's")
    kept_kernels.keep(all_reduce, "root", text_of("root"))
    kernel, whose = own_all_reduce()
    assert (kernel.name, whose) == ("root", "yours")
    kept_kernels.keep(all_reduce, "ring", ALL_SEND_FIRST)
    assert own_all_reduce()[0].name == "ring"
    kept_kernels.keep(all_reduce, "ring", ALL_SEND_FIRST.replace("+ part", "- part"))
    assert own_all_reduce()[0].name == "root"


def send_first_with_long_vectors(group):
    """Right with boxes for letters; without them each says in time whom it waits for; the next exchange is clean."""
    from nncourse.parallel.patient import PatientGroup

    by_ring, patient, strict = all_reduce_of(ALL_SEND_FIRST), PatientGroup(), PatientGroup(patience=0.3, buffered=False)
    vector, start = np.ones(100_000, np.float32), time.monotonic()
    by_ring(patient, vector)
    with pytest.raises(CourseError) as waited:
        by_ring(strict, np.ones(4, np.float32))
    with pytest.raises(CourseError) as shorter:
        patient.send(np.ones(3), 1 - group.rank)
        patient.receive(np.ones(2), 1 - group.rank)
    again = np.ones(4, np.float32)
    by_ring(PatientGroup(), again)
    return vector, again, str(waited.value), str(shorter.value), time.monotonic() - start


def test_over_mpi_a_member_that_waits_in_vain_is_told_so():
    for rank, (vector, again, waited, shorter, seconds) in enumerate(in_processes(send_first_with_long_vectors, 2)):
        assert (vector == 2).all() and (again == 2).all() and seconds < 10
        place = f"rank {rank} has waited 0.3 s at its step 1 to send 2 numbers to rank {1 - rank}"
        assert waited == f"{place}: it does not receive them"
        assert shorter.endswith(f"receive 2 numbers from rank {1 - rank}: 24 bytes came instead of 16")


LATE = 0.3  # seconds


def exchanges_of_long_vectors(group):
    """The seconds of an exchange in which rank 0 sends to rank 1, which comes late; a sum after one that failed."""
    from nncourse.parallel.patient import PatientGroup

    def one_way(group, vector):
        if group.rank == 0:
            group.send(vector, 1)
        else:
            time.sleep(LATE)
            group.receive(vector, 0)

    def wrong(group, vector):
        group.send(vector, 1 - group.rank, tag=1)
        group.receive(vector, 1 - group.rank, tag=2)

    patient = PatientGroup(patience=2 * LATE)
    patient.barrier()
    start = time.monotonic()
    ByKernel(patient, one_way).all_reduce(np.ones(1_000_000, np.float32))
    seconds, vector = time.monotonic() - start, np.ones(1_000_000, np.float32)
    with pytest.raises(CourseError, match="nothing comes"):
        ByKernel(patient, wrong).all_reduce(vector)
    ByKernel(patient, all_reduce_of(ALL_SEND_FIRST)).all_reduce(vector)
    return seconds, vector


def test_over_mpi_an_exchange_ends_when_its_long_letters_have_come():
    """MPI may keep one from its receiver until the sender has computed; those of failed exchanges do not count."""
    for seconds, vector in in_processes(exchanges_of_long_vectors, 2):
        assert seconds > 0.9 * LATE and (vector == 2).all()
