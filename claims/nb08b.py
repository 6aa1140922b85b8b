"""The evidence for what notebook 08b claims."""

import struct
from collections import Counter

import numpy as np

from claims import Claim
from cuda_on_cpu.nvrtc import machine_code, why_no_nvrtc
from nnclassroom import find, overheads
from nnclassroom.exercises.nb08_to_10 import A4000, H200, occupancy
from nnclassroom.figures.nb08_ladder import HELD_BACK
from nncourse.kernels.kernel import CudaKernel
from nncourse.kernels.trial import Budget

LDS, FFMA = 0x984, (0x223, 0x823, 0xA23)  # opcodes of sm_90: a read from shared memory, a multiplication with addition
FLOPS = 2 * 4096**3


def _budget(name: str) -> list[int]:
    """The limits of a kernel named for an idea, as numbers."""
    budget: Budget = find("dense_forward").trial.budgets[name]
    return [eval(limit.formula, {}, dict(budget.sizes)) for limit in budget.limits]  # formulas of sizes


def instructions_of(kernel: CudaKernel) -> Counter[str]:
    """How many reads from shared memory and how many products the compiled kernel has."""
    cubin = machine_code(kernel.source, "sm_90")
    (start,), (count, names) = struct.unpack_from("<Q", cubin, 0x28), struct.unpack_from("<HH", cubin, 0x3C)
    sections = [struct.unpack_from("<IIQQQQ", cubin, start + 64 * number) for number in range(count)]
    found: Counter[str] = Counter()
    for name, _, _, _, at, size in sections:
        if cubin[sections[names][4] + name :].split(b"\0")[0].decode() == f".text.{kernel.entry}":
            for place in range(at, at + size, 16):
                code = struct.unpack_from("<Q", cubin, place)[0] & 0xFFF
                found["reads"] += code == LDS
                found["products"] += code in FFMA
    return found


def reads_of_machine_code() -> bool:
    """The numbers of the table, and of the cell of the second roof. (double_buffered has 6 more before its loop.)"""
    if why_no_nvrtc():
        return False
    for name, (reads, _) in HELD_BACK.items():
        kernel = find("dense_forward")[name]
        assert isinstance(kernel, CudaKernel)
        found = instructions_of(kernel)
        if name == "double_buffered":
            found["reads"] -= 6
        if reads and 64 * found["reads"] != reads * found["products"]:
            return False
    return True


def of_recorded(name: str) -> float:
    return next(row["seconds"] for row in overheads.table("dense") if row["side"] == 4096 and row["kernel"] == name)


def shared_memory_is_the_lower_roof() -> bool:
    found = overheads.recorded("overheads")["chip"]
    roof = 2 * 16 / (4 * 20) * found["multiprocessors"] * 128 * found["clock"]
    below = roof < overheads.recorded("gpu")["limits"]["copy"] * 4
    share, gain = FLOPS / of_recorded("tiled") / roof, of_recorded("tiled") / of_recorded("tiles_1d")
    return bool(below and round(share, 2) == 0.59 and round(gain, 2) == 2.16 and 24 / 64 < (20 / 16) / 3)


def larger_tile_lifts_the_other_roof() -> bool:
    """From 16 × 16 to 64 × 64: 4 and 16 FLOP per byte."""
    limits = overheads.recorded("gpu")["limits"]
    return [round(min(limits["matrix"], side / 4 * limits["copy"]) / 1e12) for side in (16, 64)] == [17, 51]


def what_the_last_rungs_gain() -> bool:
    one = of_recorded("vectorised") / of_recorded("warp_tiles")
    return bool(abs(one - 1) < 0.015 and round(of_recorded("warp_tiles") / of_recorded("double_buffered"), 2) == 1.33)


def budget_of_eight_sums() -> bool:
    cube = 64 * 16 * 64
    return cube == 65_536 and cube // 16 == 4_096 and _budget("tiles_1d") == [2048, 8, 2048, 8]


def budget_of_64_sums() -> bool:
    return _budget("tiles_2d") == [4096, 16, 4096, 16, 39321] and int(0.3 * 128 * 8 * 128) == 39321


def budget_of_fours() -> bool:
    return _budget("vectorised") == [512, 8, 512, 8, 13107] and int(0.1 * 128 * 8 * 128) == 13107


def limits_of_an_sm() -> bool:
    whole = (H200.warps, H200.blocks, H200.registers, H200.shared_bytes) == (64, 32, 65536, 228 * 1024)
    return whole and (A4000.warps, A4000.shared_bytes) == (48, 100 * 1024)


def with_33_40_41_registers() -> bool:
    three = (np.array(each, np.int32) for each in ((33, 40, 41), (0, 0, 0), (256, 256, 256)))
    return bool((occupancy["numpy"](*three, H200) == np.float32([0.75, 0.75, 0.625])).all())


def four_turns() -> bool:
    """16 rows of 8 numbers: how many of the rows that a warp reads at one k share a bank."""
    banks = Counter(row * 8 % 32 for row in range(16))
    return len(banks) == 4 and set(banks.values()) == {4}


CLAIMS = [
    Claim("tiles-after", "a thread keeps 8 × 8 sums", why="definition: of tiles_1d and tiles_2d"),
    Claim("title", "threads keep 8 and 64 sums", why="definition: the exercises"),
    Claim("roofline-answer", "20 reads serve 16 products", once=reads_of_machine_code),
    Claim("roofline-answer", "gives about 33.5 TB/s", why="derived: 132 · 128 bytes · 1.98 GHz"),
    Claim("shared-answer", "the kernel reaches 59 % of it", once=shared_memory_is_the_lower_roof),
    Claim("shared-answer", "lifts the other roof too, from 17 to 51 TFLOP/s", once=larger_tile_lifts_the_other_roof),
    Claim("shared-answer", "2 · 33.5 = 67 TFLOP/s", why="derived: 132 · 128 bytes · 1.98 GHz are 33.5 TB/s"),
    Claim("shared-answer", "the roof would be 8.4 TFLOP/s", why="derived: 16 · 1 + 4 · 4 turns, 0.25 FLOP per byte"),
    Claim("shared-answer", "Most further rungs take one suspect away", why="definition: of the table that follows"),
    Claim("tiles-budget", "reads `A` 65,536 times", once=budget_of_eight_sums),
    Claim("tiles-budget", "at most 2,048 times", once=budget_of_eight_sums),
    Claim("tiles-2d-exercise", "A tile has 1,024 numbers", why="derived: 128 · 8 numbers for 256 threads"),
    Claim("tiles-2d-exercise", "Then add the 64 products", why="derived: 8 · 8"),
    Claim("tiles-2d-budget", "may be read at most 4,096 times", once=budget_of_64_sums),
    Claim("tiles-2d-budget", "at most 0.3 times per product", once=budget_of_64_sums),
    Claim("vectorised-words", "needs 16 instructions", once=reads_of_machine_code),
    Claim("vectorised-steps", "its sums are never written", why="definition: step 5 writes those that exist"),
    Claim("vectorised-budget", "at most 512 reads of `A` and of `W` each", once=budget_of_fours),
    Claim("held-back-words", "says how many times as fast the next rung is", why="definition: the column"),
    Claim("held-back-answer", "is worth nothing", once=what_the_last_rungs_gain),
    Claim("held-back-answer", "was worth 33 %", once=what_the_last_rungs_gain),
    Claim("room-intro", "65,536 on an SM", once=limits_of_an_sm),
    Claim("room-intro", "228 KiB on an SM", once=limits_of_an_sm),
    Claim("occupancy-exercise", "in portions of 256", why="source: CUDA's occupancy calculator, sm_80 to sm_90"),
    Claim("occupancy-predict", "48 warps and 100 KiB", once=limits_of_an_sm),
    Claim("occupancy-answer", "128 sums are 128 multiplications", why="derived: each adds to a sum of its own"),
    Claim("try-answers", "six blocks fit into 65,536", once=with_33_40_41_registers),
    Claim("try-answers", "With 40 it is the same", once=with_33_40_41_registers),
    Claim("try-answers", "With 41, rounded to 48", once=with_33_40_41_registers),
    Claim("try-answers", "the banks need 4 turns", once=four_turns),
    Claim("end", "10 climbs this ladder with convolutions", why="source: notebook 10"),
]
