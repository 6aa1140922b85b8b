"""The evidence for notebook 08c: what tools recorded, and what the emulator and two counts say here."""

from typing import Any

import numpy as np

from claims import Claim
from nnclassroom import check, find
from nnclassroom.figures import nb08_tools as tools
from nnclassroom.figures import overheads
from nncourse.kernels.dense import fastest

DEFINITION = "definition: of requests, sectors, turns and banks"


def recorded() -> dict[str, Any]:
    return overheads.recorded("tools")


def nobody_sees_them() -> bool:
    """None of 594 numbers is wrong, and each tool finds its fault alone."""
    found = recorded()["found"]
    alone = all(row["alone"].startswith("no error; 0 of 594") for row in found.values())
    return alone and all(
        row[tool] == (tool == tools.FAULTS[name].tool) for name, row in found.items() for tool in tools.TOOLS
    )


def seen_by_the_emulator(seed: int) -> bool:
    """Three of the four by the line that was changed or by its partner, the fourth by its result."""
    kernel = find("dense_forward")
    said = {name: str(check(kernel, tools.fault(name), device="emulator", seed=seed)) for name in tools.FAULTS}
    lines = {"out of bounds": ".cu:14:", "race": "race.cu:17:", "barrier": ".cu:16:"}
    return all(line in said[name] for name, line in lines.items()) and "got nan" in said["never set"]


def first_report() -> bool:
    """The thread of the report has sample 33, and A ends where the report says."""
    log = "\n".join(recorded()["logs"]["out of bounds"])
    behind = (2 * 16 + 1) * 20 * 4 - 33 * 20 * 4  # bytes; the report counts from 1
    there = f"{behind + 1} bytes after the nearest allocation" in log and "size 2,640 bytes" in log
    return "thread (0,1,0) in block (0,2,0)" in log and there


def stopped_in_the_second_step() -> bool:
    """The first stop is at thread 0, the second at sample 33 of 33, with an index past the end of A."""
    said = recorded()["debugger"]
    stops = [line for line in said if line.startswith("[Switching")]
    i, batch, index, size = (int(line.split(" = ")[1]) for line in said if line.startswith("$"))
    there = "block (0,0,0), thread (0,0,0)" in stops[0] and "block (0,2,0), thread (0,1,0)" in stops[1]
    return there and (i, batch, size) == (33, 33, 33 * 20) and index == i * 20 + 16


def counted_alike() -> bool:
    """The course's own two counts, on the emulator's addresses, are the GPU's."""
    sectors, turns = find("warp_sectors")["numpy"], find("bank_turns")["numpy"]
    for rung, counts in recorded()["counts"].items():
        for kind in ("read", "write"):
            asked, stored = tools.requests(rung, kind, shared=False), tools.requests(rung, kind, shared=True)
            if (len(asked), sectors(asked).sum()) != (counts[f"requests {kind}"], counts[f"sectors {kind}"]):
                return False
            if (turns(stored) - 1).sum() != counts[f"conflicts {kind}"]:
                return False
    return True


def requests_of_tiled() -> bool:
    """Four blocks of eight warps, two steps: 64 for A and for W, and one of each warp for b."""
    return len(tools.requests("tiled", "read", shared=False)) == 4 * 8 * 2 * 2 + 4 * 8


def kernels_alike() -> bool:
    """The shares of all CUDA kernels, by the saved counts."""
    rows = overheads.recorded("counts")["counts"]
    always = sum(row["emulator"] == row["gpu"] for row in rows)
    either = sum(row["emulator"] in (row["gpu"], row["gpu, as written"]) for row in rows)
    return 0.8 < always / len(rows) < 0.9 and either / len(rows) > 0.95


def naive_is_not_held_back_by_these() -> bool:
    large = recorded()["large"]
    naive, tiled = large["naive"], large["tiled"]
    others = [large[name] for name in ("coalesced", "tiled")]
    times = [naive["seconds"] / each["seconds"] for each in others]
    asked = large["coalesced"]["requests"] / tiled["requests"]
    return bool(
        naive["dram"] < 0.5
        and naive["l1"] > 98.5
        and round(naive["sectors_a_request"], 1) == 16.5
        and all(each["warps"] > 90 for each in large.values())
        and [round(time) for time in times] == [12, 15]
        and 15.5 < asked < 16.5
    )


def a_sixth_of_the_step() -> bool:
    step = recorded()["step"]
    inside = sum(seconds for _, seconds in step["launches"])
    return len(step["launches"]) == 14 and 0.155 < inside / step["seconds"] < 0.18 and step["recorded"] < inside


def _shares(side: int | tuple[int, int, int]) -> dict[str, float]:
    sizes = (side,) * 3 if isinstance(side, int) else side
    found = [
        each
        for each in overheads.recorded("tensor_cores-nvidia-h200")["products"]
        if (each["batch"], each["n_in"], each["n_out"]) == sizes
    ]
    of = {each["contender"]: each["tflops"] for each in found}
    return {
        each["contender"].removeprefix("nncourse "): each["tflops"] / of[f"PyTorch {each['factors']}"] for each in found
    }


def best_by_shape() -> bool:
    small, last = _shares(1024), _shares((4480, 4608, 512))
    three = ("double_buffered", "small_tiles", "stream_k")
    right = [max(three, key=each.__getitem__) for each in (small, last)] == ["small_tiles", "stream_k"]
    return right and last["stream_k"] > 1 and small["by_shape"] > 0.97 and last["by_shape"] > 1.4


def double_buffered_ends_the_ladder() -> bool:
    (share,) = (row["of_cublas"] for row in overheads.table("dense") if row["kernel"] == "double_buffered")
    return bool(0.97 < share < 0.985)


def the_engine_is_worth_most() -> bool:
    shares = _shares(4096)
    rungs = [shares[name] for name in ("tensor_cores", "wgmma", "wgmma_buffered", "tma", "tma_pipelined")]
    steps = np.diff(rungs)
    numbers = [round(100 * share) for share in rungs] == [29, 45, 52, 89, 91]
    return bool(numbers and steps[2] > steps[[0, 1, 3]].sum() and _shares(1024)["tma"] > _shares(1024)["tma_pipelined"])


def cut_or_rounded() -> bool:
    found = [each for each in overheads.recorded("tensor_cores-nvidia-h200")["products"] if each["factors"] == "TF32"]
    errors = {
        name: [each["error"] for each in found if name in each["contender"]]
        for name in ("tensor", "PyTorch", "wgmma", "tma")
    }
    ratios = np.divide(errors["tma"][:4], errors["PyTorch"])
    return bool(min(ratios) > 2 and max(ratios) < 3.2 and max(errors["tensor"]) < 1.2 * max(errors["PyTorch"]))


def four_blocks_a_tile() -> bool:
    """128 blocks for the 32 tiles of 1,024³, and the same share for each."""
    return (
        fastest(1024, 1024, 132) == "small_tiles" and 132 // 32 == 4 and fastest(4096, 4096, 132) == "double_buffered"
    )


def try_answers() -> bool:
    lanes = np.arange(32)
    sectors, turns = find("warp_sectors")["numpy"], find("bank_turns")["numpy"]
    columns = [int(turns(np.int32([4 * width * lanes]))[0]) for width in (32, 33, 34)]
    return int(sectors(np.int32([4 + 4 * lanes]))[0]) == 5 and columns == [32, 1, 2]


CLAIMS = [
    Claim("faults-words", "compares all 594 results", why="definition: of the program, 33 · 18"),
    Claim("found-answer", "None of the four programs", once=nobody_sees_them),
    Claim("found-answer", "Each tool found its fault", once=nobody_sees_them),
    Claim("found-answer", "It runs threads in three orders", why="definition: of check()"),
    Claim("found-answer", "It names a line of the kernel for three", seeds=seen_by_the_emulator),
    Claim("logs-words", "The number that was never set", seeds=seen_by_the_emulator),
    Claim("logs-words", "at most 12 lines", why="definition: of what benchmarks/tools.py keeps"),
    Claim("logs-words", "There are 33 samples", why="definition: of the program"),
    Claim("logs-answer", "may name another sample", why="source: an earlier run named sample 34"),
    Claim("logs-answer", "Block (0, 2, 0) has the samples", once=first_report),
    Claim("logs-answer", "The emulator named the same line", seeds=seen_by_the_emulator),
    Claim("logs-answer", "the 33 · 20 numbers", once=first_report),
    Claim("logs-answer", "Thread (0, 1, 0) has sample 33", once=first_report),
    Claim("debugger-words", "a thread of sample 33", once=stopped_in_the_second_step),
    Claim("debugger-words", "and 16 in the second", why="definition: of the kernel, whose tiles have 16 × 16 numbers"),
    Claim("debugger-answer", "The index is 676", once=stopped_in_the_second_step),
    Claim("debugger-answer", "`A` has 660 numbers", once=stopped_in_the_second_step),
    Claim(
        "debugger-answer", "Many warps come to line 14", why="source: the stops of several runs of benchmarks/tools.py"
    ),
    Claim("debugger-answer", "does not ask whether sample", why="definition: of the changed line"),
    Claim("counts-words", "that is one **request**", why=DEFINITION),
    Claim("counts-words", "costs one **sector** of 32 bytes", why=DEFINITION),
    Claim("counts-words", "a **word** is 4 bytes", why=DEFINITION),
    Claim("sectors-exercise", "do not count on 32 lanes", why="definition: of the cases"),
    Claim("counters-words", "on 33 samples, 65 inputs", why="definition: of the case for budgets"),
    Claim("turns-exercise", "Shared memory has 32 banks", why=DEFINITION),
    Claim("counters-answer", "64 for each; the other 32", once=requests_of_tiled),
    Claim("counters-answer", "they differ nowhere", once=counted_alike),
    Claim("counters-answer", "four in five of the course's CUDA kernels", once=kernels_alike),
    Claim("large-answer", "L1 is 99 % busy", once=naive_is_not_held_back_by_these),
    Claim("large-answer", "touches 16.5 sectors", once=naive_is_not_held_back_by_these),
    Claim("large-answer", "28 are not for this request", why="derived: 4 bytes of 32 are"),
    Claim("large-answer", "takes a twelfth of the time", once=naive_is_not_held_back_by_these),
    Claim("large-answer", "a sixteenth as many requests", once=naive_is_not_held_back_by_these),
    Claim("large-answer", "Below is one training step", why="definition: of what benchmarks/tools.py launches"),
    Claim("launches-answer", "about a sixth", once=a_sixth_of_the_step),
    Claim("launches-answer", "fourteen kernels take", once=a_sixth_of_the_step),
    Claim("launches-answer", "the whole step takes 42 µs", once=a_sixth_of_the_step),
    Claim("float32-words", "nearly as fast as cuBLAS", once=double_buffered_ends_the_ladder),
    Claim("float32-words", "132 multiprocessors", why="source: NVIDIA, and results/tools.json"),
    Claim("float32-words", "have 32 such tiles", why="derived: (1,024 / 128) · (1,024 / 256)"),
    Claim("float32-words", "tiles of a quarter of the size", why="definition: 64 × 128 of 128 × 256"),
    Claim("float32-answer", "For 1,024³ it is", once=best_by_shape),
    Claim("float32-answer", "four blocks share each tile", once=four_blocks_a_tile),
    Claim("float32-answer", "it takes `double_buffered`", once=four_blocks_a_tile),
    Claim("float32-answer", "so 100 multiprocessors", why="derived: 132 − 32"),
    Claim("float32-answer", "For the last shape it is", once=best_by_shape),
    Claim("float32-answer", "70 tiles leave 62", why="derived: 35 · 2 tiles, 132 − 70"),
    Claim("float32-answer", "cuBLAS is slower here", once=best_by_shape),
    Claim("tensor-cores", "10 bits after the point", why="definition: of TF32"),
    Claim("tensor-cores", "were up to three times as large", once=cut_or_rounded),
    Claim("tf32-predict", "reaches 29 %", once=the_engine_is_worth_most),
    Claim("tf32-predict", "worth more percentage points", once=the_engine_is_worth_most),
    Claim("tf32-answer", "from 52 to 89 %", once=the_engine_is_worth_most),
    Claim("tf32-answer", "hardly anything for 4,096³", once=the_engine_is_worth_most),
    Claim("tf32-answer", "32 tiles for 132 multiprocessors", once=the_engine_is_worth_most),
    Claim("try", "rows of 32, 33 and 34", why="definition: of the question"),
    Claim("try-answers", "5 sectors", once=try_answers),
    Claim("try-answers", "32, 1 and 2 turns", once=try_answers),
]
