"""Put new parts of a GPU run into the results of an earlier run on the same machine with the same versions."""

from benchmarks import digits

PARTS = ("epochs", "base", "floors", "dense", "mnist", "credit_card", "digits", "accuracies", "convolutions")


def differences(before: dict, now: dict) -> str:
    """What is said of machine and versions in both, and is not the same; "" if there is no difference."""
    pairs = {key: (before[key], now[key]) for key in ("machine", "cpu")}
    both = before["versions"].keys() & now["versions"].keys()
    pairs |= {name: (before["versions"][name], now["versions"][name]) for name in sorted(both)}
    unlike = [f"{name} {there}, here {here}" for name, (there, here) in pairs.items() if _bare(there) != _bare(here)]
    return "; ".join(unlike)


def _bare(version: str) -> str:
    """A version without the name of its build, which not every source of versions gives."""
    return version.split("+")[0]


def merged(before: dict, result: dict) -> dict:
    """The results of before, with the parts, versions and days of a later run in their places."""
    new = result["dates"].keys()
    dates = dict.fromkeys(part_names(before), before["date"]) | before.get("dates", {}) | result["dates"]
    old_tables = {name: list(records) for name, records in before["tables"].items()}
    put(old_tables, result["tables"])
    old_reasons = {key: why for key, why in before["left_out"].items() if part_of(key) not in new}
    return before | {
        "date": result["date"],
        "dates": dates,
        "versions": before["versions"] | result["versions"],
        "tables": old_tables,
        "left_out": old_reasons | result["left_out"],
    }


def part_names(result: dict) -> list[str]:
    """The parts that a results file without days for each holds."""
    return [name for name in PARTS if result["tables"].get(name)]


def part_of(key: str) -> str:
    """The part to which a key of `left_out` belongs."""
    first, last = key.split(" / ")[0], key.split(" / ")[-1]
    if first in PARTS:
        return first
    from benchmarks.contenders import BASE
    from benchmarks.convolutions import LAYERS, REFERENCE

    if last in BASE:  # none of them is a contender of another part
        return "base"

    if first == REFERENCE or any(first.startswith(f"{layer.name}, ") for layer in LAYERS):
        return "convolutions"
    return "digits" if first.startswith(digits.NAME) else "epochs"


def put(tables: dict[str, list[dict]], new: dict[str, list[dict]]) -> None:
    """Put new tables in the place of old ones; in `epochs`, which two parts make, the records of the same networks."""
    networks = {record["network"] for record in new.get("epochs", [])}
    kept = [record for record in tables.get("epochs", []) if record["network"] not in networks]
    tables |= new
    if networks:
        tables["epochs"] = kept + new["epochs"]
