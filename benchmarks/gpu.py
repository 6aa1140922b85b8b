"""Measure everything on a GPU in one run: python -m benchmarks.gpu [--only PART,PART [--merge]] [--quick] [--out FILE].

--quick measures any card in a minute or two, prints a page and writes results/card-MACHINE.json, which becomes a row of
docs/speed.md: see cards.py. --quick --only measures some parts with small sizes, to test that they run.

A complete run writes results/gpu.json, from which `python -m benchmarks.tables` makes docs/speed.md; this folder's
README.md describes its contents. The part `base` also times the CPU: a plain C program, loops, NumPy, Numba. --merge
puts the parts into the existing file if machine and versions are the same, and otherwise measures everything. Each part
runs in its own process, and so does each contender of `epochs`, `base` and `digits`.
"""

import argparse
import datetime
import json
import statistics
import sys
import time
from math import ceil
from pathlib import Path

from benchmarks import card_tables, cards, compare, digits, merging, workers
from benchmarks.contenders import CASES
from benchmarks.machines import about, slug
from benchmarks.merging import PARTS
from benchmarks.saved import RESULTS, refuse_out, save

GROUPS = {"epochs": "gpu", "base": "base", "digits": "digits"}  # parts with contenders, and the name of these
LIMIT = 75.0  # seconds after which a part without contenders is given up
APART = 0.01  # accuracies of the digits CNN's contenders may lie this far from their median


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=parts_of, metavar="PART,PART", help=f"parts: {', '.join(PARTS)}; or all")
    parser.add_argument(
        "--merge", action="store_true", help="put the parts into results/gpu.json, if it is of this machine"
    )
    parser.add_argument("--quick", action="store_true", help="measure any card in minutes; with --only: small sizes")
    parser.add_argument("--rounds", type=int, default=3)
    usual = "default: results/gpu.json for a whole run and --merge, results/card-MACHINE.json for --quick"
    parser.add_argument("--out", type=Path, help=f"file for the results ({usual})")
    options = parser.parse_args(arguments)
    if options.merge and options.quick:
        parser.error("expected --merge or --quick, got both: small sizes are not merged")
    card = options.quick and not options.only
    parts = options.only or list(cards.PARTS if card else PARTS)
    whole = set(parts) == set(PARTS) and not options.quick
    out = options.out or (RESULTS / "gpu.json" if whole or options.merge else None)
    if out or card:
        refuse_out(parser, out or RESULTS / "card.json")
    from benchmarks import tables
    from nncourse import device as devices

    if not devices.gpu_available():
        print(f"benchmarks.gpu: {devices.why_no_gpu()}", file=sys.stderr)
        return 2
    try:
        before = json.loads((RESULTS / "gpu.json").read_text("utf-8")) if options.merge else None
        result = run(parts, 1 if options.quick and not card else options.rounds, options.quick, before)
    except workers.WrongResultError as error:
        print(f"benchmarks.gpu: a wrong result, so nothing is written: {error}", file=sys.stderr)
        return 1
    except (workers.FailedError, OSError) as error:
        print(f"benchmarks.gpu: {error}", file=sys.stderr)
        return 1
    if out or card:
        save(result, out or RESULTS / f"card-{slug(result['machine'])}.json")
    print(f"\n{card_tables.page(result)}" if card else tables.gpu_tables(result))
    return 0


def parts_of(text: str) -> list[str]:
    """The parts of "digits,convolutions", or of "all"."""
    asked = list(PARTS) if text == "all" else text.split(",")
    if unknown := [name for name in asked if name not in PARTS]:
        raise argparse.ArgumentTypeError(f"expected some of {','.join(PARTS)}; got {','.join(unknown)}")
    return asked


def run(parts: list[str], rounds: int, quick: bool, before: dict | None = None) -> dict:
    """Run the parts, and return the contents of the results file.

    If there are results of `before` on this machine, they have the new parts in them; if they are of another machine,
    all parts are run.
    """
    begin, today = time.perf_counter(), datetime.date.today().isoformat()
    result = workers.asked_once(part, ("machine", quick, rounds), LIMIT)
    print(f"{workers.since(begin)}  machine", flush=True)
    if before and (unlike := merging.differences(before, result)):
        print(f"everything is measured, because these are not those of results/gpu.json: {unlike}", flush=True)
        parts, before = PARTS, None
    result |= {"date": today, "dates": dict.fromkeys(parts, today), "tables": {}, "left_out": {}}
    for name in parts:
        try:
            if name == "networks":
                measured = cards.training(rounds)
            else:
                measured = contest(name, rounds, quick) if name in GROUPS else alone(name, rounds, quick)
        except workers.FailedError as error:
            measured = {"tables": {}, "versions": {}, "left_out": {name: str(error)}}
        merging.put(result["tables"], measured["tables"])
        result["versions"] |= measured["versions"]
        result["left_out"] |= measured["left_out"]
        print(f"{workers.since(begin)}  {name}", flush=True)
    if before:
        result = merging.merged(before, result)
    join_floors(result["tables"])
    return result


def contest(name: str, rounds: int, quick: bool) -> dict:
    """The table of a part with contenders, `base` or `epochs`, the versions, and what was left out."""
    compared = compare.compare(GROUPS[name], rounds, quick)
    compare.show(compared)
    records = epoch_records(compared["seconds"], quick, GROUPS[name], compared["facts"])
    left_out = compared["left_out"]
    if name == "digits":
        records, odd = of_one_accuracy(records)
        left_out = left_out | odd
    tables = {"base" if name == "base" else "epochs": records} if records else {}
    return {"tables": tables, "versions": compared["versions"], "left_out": left_out}


def of_one_accuracy(records: list[dict]) -> tuple[list[dict], dict[str, str]]:
    """The contenders that agree on the test set, and why the others are left out."""
    known = [record["accuracy"] for record in records if record["accuracy"] is not None]
    middle = statistics.median(known) if known else 0.0
    agreeing, left_out = [], {}
    for record in records:
        if record["accuracy"] is not None and abs(record["accuracy"] - middle) > APART:
            said = f"{record['accuracy']:.1%} of the test set right after an epoch, the others {middle:.1%}"
            left_out[f"{record['network']}, batch {record['batch']} / {record['contender']}"] = said
        else:
            agreeing.append(record)
    return agreeing, left_out


def alone(name: str, rounds: int, quick: bool) -> dict:
    """The same for a part without contenders, from a process of its own."""
    found = workers.asked_once(part, (name, quick, rounds), LIMIT)
    about = {key: found.pop(key, {}) for key in ("versions", "left_out")}
    return {"tables": {key: records for key, records in found.items() if records}} | about


def part(request: tuple[str, bool, int]) -> dict:
    """Called in a separate process: the tables of one part, or the description of the machine.

    Beside its tables an answer may have `versions` and `left_out`.
    """
    name, quick, rounds = request
    if name == "machine":
        return machine()
    if name == "floors":
        from benchmarks import floors
        from nncourse.kernels.dense_epoch import DenseArchitecture
        from nncourse.model.network import make_network

        cases = CASES["gpu"].values()
        return floors.measure([(DenseArchitecture.of(make_network(case.sizes)), case.batch) for case in cases])
    if name == "dense":
        return cards.ladder(card_tables.SIDE if quick else 4096, rounds)
    if name == "tensor_cores":
        return cards.tensor_cores(card_tables.SIDE, rounds)
    if name == "convolutions":
        from benchmarks import convolutions

        return convolutions.measure(rounds, layers=convolutions.LAYERS[3:] if quick else convolutions.LAYERS)
    from benchmarks import learning

    if name == "accuracies":
        if quick:
            return {"accuracies": learning.digits(1, 2, samples=3_200)}
        return {"accuracies": learning.digits(10, learning.DIGITS_EPOCHS)}
    if name == "mnist":
        return {"mnist": learning.mnist(1 if quick else 5, 2 if quick else learning.MNIST["epochs"])}
    return {"credit_card": learning.credit_card(2 if quick else learning.CREDIT_CARD["epochs"])}


def machine() -> dict:
    """The GPU, the CPU, the versions, and the measured limits."""
    from nncourse import device as devices

    return about("gpu") | {"limits": devices.limits("gpu")}


def epoch_records(
    seconds: dict[str, dict[str, list[float]]], quick: bool = False, group: str = "gpu", facts: dict | None = None
) -> list[dict]:
    """Records of the table `epochs`, from compare()'s seconds per step and its facts."""
    found = []
    for name, times in seconds.items():
        case = CASES[group][name].smaller() if quick else CASES[group][name]
        for contender, rounds in times.items():
            median = statistics.median(rounds)
            record = {
                "network": "-".join(map(str, case.sizes)) or digits.NAME,
                "batch": case.batch,
                "samples": case.samples,
                "contender": contender,
                "seconds_a_step": median,
                "seconds_an_epoch": median * ceil(case.samples / case.batch),
                "rounds": rounds,
            }
            found.append(record | (facts or {}).get(name, {}).get(contender, {}))
    return found


def join_floors(tables: dict[str, list[dict]]) -> None:
    """Add one_kernel's measured time, and what limits it, to the records of its floors."""
    from benchmarks import floors

    measured = {
        (record["network"], record["batch"]): record["seconds_a_step"]
        for record in tables.get("epochs", [])
        if record["contender"] == "nncourse one_kernel"
    }
    for record in tables.get("floors", []):
        record["seconds_a_step"] = measured.get((record["network"], record["batch"]))
        record["limit"] = floors.limit(record)


if __name__ == "__main__":
    sys.exit(main())
