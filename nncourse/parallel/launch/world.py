"""A process's rank and the number of processes, from its launcher's environment variables, before MPI starts."""

from collections.abc import Mapping
from typing import NamedTuple

from nncourse.errors import CourseError

# The variables of the launchers of MPICH (also Intel's, and Slurm's pmi2) and Open MPI, and of Slurm's srun itself.
NAMES = {
    "mpiexec": ("PMI_RANK", "PMI_SIZE"),
    "Open MPI's mpiexec": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
}
LAUNCHERS = ("PMI", "PMIX", "OMPI", "PRTE", "HYDRA", "MPIR", "MPICH")  # prefixes of a launcher's variables


class LauncherEnvironment(NamedTuple):
    """A process's rank, the size of its world, and the launcher."""

    rank: int
    size: int
    by: str


def launcher_environment(environment: Mapping[str, str]) -> LauncherEnvironment:
    """This process's rank and world. If one launcher was started inside another, the larger world counts."""
    places = [LauncherEnvironment(0, 1, "nobody")]
    for by, (rank, size) in NAMES.items():
        if environment.get(rank, "").isdecimal() and environment.get(size, "").isdecimal():
            places.append(LauncherEnvironment(int(environment[rank]), int(environment[size]), by))
    return max(places, key=lambda place: place.size)


def without_launcher(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables of an outer launcher, which would mislead the next.

    Open MPI's variables stay if its launcher has not run: then they are the user's settings.
    """
    mine = {name for names in NAMES.values() for name in names}
    launchers = [each for each in LAUNCHERS if each != "OMPI" or NAMES["Open MPI's mpiexec"][1] in environment]
    return {
        name: value
        for name, value in environment.items()
        if name not in mine and not name.startswith(tuple(f"{launcher}_" for launcher in launchers))
    }


def refuse_wrong(place: LauncherEnvironment, size: int) -> None:
    """Raise CourseError if MPI's world does not have the size that the launcher set: then their MPIs differ."""
    if size == place.size:
        return
    advice = {
        "srun": "use srun --mpi=pmi2 for the wheel mpich, or the one in `srun --mpi=list` for your cluster's MPI",
    }.get(place.by, "start it with the mpiexec of the same MPI, or let `nncourse train --processes` do so")
    got = "each process is alone in its own" if size == 1 else f"it has {size}"
    raise CourseError(f"expected a world of {place.size} processes, according to {place.by}; {got}: {advice}")
