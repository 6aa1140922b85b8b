"""A real Slurm on this machine for the tests of slurm/: one node with two pretended GPUs.

Each daemon has its own folder, key and socket, listens on the loopback address, and is ended by its own process id.
"""

import contextlib
import os
import re
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from processes import with_variable

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel", "squeue", "setpriv")
FINISHED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")
# Debian puts the daemons where only root looks.
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"

SLURM_CONF = (Path(__file__).parent / "slurm.conf").read_text("utf-8")


def why_not() -> str:
    """Why no Slurm can be started here; "" if one can."""
    if not sys.platform.startswith("linux"):
        return "Slurm runs on Linux only"
    if os.geteuid() != 0:
        return "a Slurm for the test wants root"
    missing = [program for program in PROGRAMS if not shutil.which(program, path=PATH)]
    if missing:
        return f"no {', '.join(missing)} here: apt install slurmctld slurmd slurm-client munge"
    with tempfile.TemporaryDirectory() as folder:
        try:
            _make_device(Path(folder) / "device")
        except OSError as error:
            return f"this machine lets nobody make a device file for the GPUs of the test ({error.strerror})"
    return ""


def _make_device(path: Path) -> None:
    """A device like /dev/null. Slurm takes only a device file for a GPU."""
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nothing listens on."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


class Cluster:
    """A running Slurm, controlled by its own commands."""

    def __init__(self, folder: Path):
        self.folder = folder
        # Nothing of a job in which these tests themselves may run.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
        self.environment = kept | {"PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}

    def run(self, *command: str | Path, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess:
        """Run one of Slurm's commands, with these variables in its environment."""
        environment = self.environment | variables
        return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=120)

    def submit(self, *command: str | Path, cwd: Path, **variables: str) -> str:
        """sbatch; the job's number."""
        result = self.run("sbatch", "--parsable", *command, cwd=cwd, **variables)
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    def job(self, number: str) -> dict[str, str]:
        text = self.run("scontrol", "show", "job", number).stdout
        return dict(re.findall(r"(\w+)=(\S*)", text))

    def wait(self, number: str, *states: str, patience: float = 120) -> dict[str, str]:
        """Wait until the job is in one of these states, by default until it has finished."""
        end = time.monotonic() + patience
        while (job := self.job(number)).get("JobState") not in (states or FINISHED):
            assert time.monotonic() < end, f"job {number} is {job.get('JobState')}: {self.log()}"
            assert states == () or job.get("JobState") not in FINISHED, f"job {number} is {job.get('JobState')}"
            time.sleep(0.2)
        return job

    def log(self) -> str:
        """The last lines of the daemons' logs."""
        return "\n".join(path.read_text(errors="replace")[-1500:] for path in sorted(self.folder.glob("*.log")))

    def is_up(self) -> bool:
        return "State=IDLE " in self.run("scontrol", "show", "node").stdout


def processes_of(number: str) -> list[int]:
    """The processes of a job on this machine: Slurm leaves the job's number in their environment."""
    return [process.pid for process in with_variable("SLURM_JOB_ID", number)]


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """A Slurm that runs until the end of the block; its jobs end with it."""
    # Not below pytest's own folder: the name of a socket may have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    daemons = []
    try:
        running = _configure(folder)
        munge = ["--foreground", "--force", "--num-threads=2", f"--key-file={folder}/munge.key"]
        munge += [f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid"]
        munge += [f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"]
        configuration = ["-D", "-f", str(folder / "slurm.conf")]
        for command in (["munged", *munge], ["slurmctld", *configuration], ["slurmd", *configuration]):
            with open(folder / f"{command[0]}.out.log", "w") as out:
                # Should the tests be killed before they can end it, it gets the signal to end itself.
                started = ["setpriv", "--pdeathsig", "TERM", *command]
                daemons.append(subprocess.Popen(started, env=running.environment, stdout=out, stderr=out))
            if command[0] == "munged":
                _until(lambda: (folder / "munge.socket").exists(), daemons, running)
        _until(running.is_up, daemons, running)
        yield running
        running.run("scancel", "--user=root")
        _until(lambda: not running.run("squeue", "--noheader").stdout, daemons, running)
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _configure(folder: Path) -> Cluster:
    """Write the files that the daemons read."""
    host = socket.gethostname().split(".")[0]
    controller_port, node_port = free_ports(2)
    first = 1000 + secrets.randbelow(1_000_000)
    ports = {"controller_port": controller_port, "node_port": node_port}
    text = SLURM_CONF.format(host=host, folder=folder, first=first, **ports)
    (folder / "slurm.conf").write_text(text)
    gpus = [folder / f"gpu{number}" for number in range(2)]
    for gpu in gpus:
        _make_device(gpu)
    (folder / "gres.conf").write_text("".join(f"Name=gpu Flags=nvidia_gpu_env File={gpu}\n" for gpu in gpus))
    version = subprocess.run([shutil.which("slurmctld", path=PATH), "-V"], capture_output=True, text=True).stdout
    if int(re.search(r"(\d+)\.", version).group(1)) >= 23:  # Slurm 22 does not know the word
        (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    (folder / "munge.key").touch(mode=0o600)
    (folder / "munge.key").write_bytes(secrets.token_bytes(128))
    (folder / "state").mkdir()
    (folder / "spool").mkdir()
    return Cluster(folder)


def _until(happened, daemons: list[subprocess.Popen], running: Cluster, patience: float = 60) -> None:
    """Wait until something has happened; fail if a daemon ends."""
    end = time.monotonic() + patience
    while not happened():
        assert all(daemon.poll() is None for daemon in daemons), f"a daemon of Slurm ended: {running.log()}"
        assert time.monotonic() < end, f"Slurm does not get there: {running.log()}"
        time.sleep(0.1)
