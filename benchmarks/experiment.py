"""Record experiments: `python -m benchmarks.experiment` does the runs that are missing in results/experiment.

Each experiment is a command of `nncourse experiment` with a folder of its own. With --limit 540 no run starts that
would not end within 540 seconds; run the same command again to continue. At the end the page of all experiments is
written; --limit 0 writes only this page.
"""

import argparse
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from nncourse import device as devices
from nnexperiment import page
from nnexperiment.runs import experiments_in

HERE = Path(__file__).parent / "results" / "experiment"
SMALL, LARGE = "112x148", "222x295"  # height x width; the thesis writes them the other way round
TRIED = "--devices 1 --runs 1 --epochs 10 --batch-size 128"  # of the validation


@dataclass(frozen=True)
class Record:
    """A folder of the results, the command's options, and about how many seconds its longest run takes on an H100."""

    folder: str
    options: str
    seconds: float
    gpus: int = 1


RECORDS = (  # in the order in which they are recorded
    Record(".", "--devices 1 --batch-size 128,256", 370),
    Record(SMALL, f"--devices 1 --runs 1 --epochs 20 --batch-size 72,96,128,160,192,256 --size {SMALL}", 60),
    Record(LARGE, f"--devices 1 --runs 1 --epochs 20 --batch-size 72,96,128 --size {LARGE}", 190),
    Record(
        "large_rate", f"--devices 1 --runs 1 --epochs 20 --batch-size 72,128 --size {LARGE} --learning-rate 0.2", 190
    ),
    Record("alone", "--devices cpu,1,group1 --runs 3 --epochs 3", 300),
    Record("validation_2", f"{TRIED} --size {SMALL}", 40),
    Record("validation_10", f"{TRIED} --size {SMALL} --validation 0.1", 40),
    Record("validation_10_every_5", f"{TRIED} --size {SMALL} --validation 0.1 --validate-every 5", 40),
    Record("validation_10_one_by_one", f"{TRIED} --size {SMALL} --validation 0.1 --validation-batch 1", 120),
    Record("hybrid", "--devices 1,cpu+1 --runs 1 --epochs 5 --size 74x99", 120),
    Record(
        "mnist", "--devices cpu,1 --runs 1 --epochs 8 --batch-size 50 --learning-rate 0.1 --cpu-steps 0 --threads 1", 60
    ),
    Record("two_gpus", "--devices 1,group1,2 --runs 3 --epochs 10", 60, gpus=2),
    Record("two_gpus", "--devices pytorch2 --runs 1 --epochs 10", 60, gpus=2),
    Record(".", "--devices 2 --runs 1", 230, gpus=2),
    Record("two_gpus_hybrid", "--devices 1,cpu+2 --runs 1 --epochs 10 --size 74x99", 200, gpus=2),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=1e9, metavar="SECONDS", help="time for all runs")
    parser.add_argument("--only", metavar="FOLDERS", help="folders to fill, such as .,hybrid (default: all)")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for the results (default: results/experiment)")
    options = parser.parse_args()
    over = time.monotonic() + options.limit
    folders = options.only.split(",") if options.only else [each.folder for each in RECORDS]
    most = max(1, devices.gpu_count())
    for record in RECORDS:
        left = over - time.monotonic()
        if record.folder not in folders or record.gpus > most or left < record.seconds:
            continue
        network = "mnist" if record.folder == "mnist" else "resnet34"
        words = [
            network,
            *shlex.split(record.options),
            "--out",
            str(options.out / record.folder),
            "--limit",
            f"{left:.0f}",
        ]
        print(f"nncourse experiment {shlex.join(words)}", flush=True)
        if status := subprocess.run([sys.executable, "-m", "nnclassroom", "experiment", *words]).returncode:
            return status
    if (options.out / "plan.json").exists():
        print(page.written(options.out / "experiment.html", *experiments_in(options.out)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
