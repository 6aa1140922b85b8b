"""The evidence for notebook 03b: recorded times of GPUs, counts on the emulator, and arithmetic."""

from claims import Claim
from nnclassroom import picture
from nnclassroom.figures import overheads

DENSE = {row["kernel"]: row for row in overheads.table("dense")}
CHIP, WAITS = overheads.recorded("overheads")["chip"], overheads.recorded("waits")


def seconds() -> bool:
    shown = {"naive": 0.273, "coalesced": 0.0225, "tiled": 0.0174, "cupy": 0.0028}
    return all(abs(DENSE[name]["seconds"] / value - 1) < 0.01 for name, value in shown.items())


def factors() -> bool:
    naive, coalesced, tiled = (DENSE[name]["seconds"] for name in ("naive", "coalesced", "tiled"))
    return 11.5 < naive / coalesced < 12.5 and 1.25 < coalesced / tiled < 1.35


def orders() -> bool:
    return 10.5 < WAITS["orders"]["W"] / WAITS["orders"]["W_t"] < 11.5 and factors()


def caches() -> bool:
    asked = 2 * 4096**3 * 4 / DENSE["coalesced"]["seconds"]
    return 23.5e12 < asked < 24.6e12 and 5.5 < asked / overheads.recorded("overheads")["limits"]["copy"] < 6.5


def rates() -> bool:
    """Of an H200: 128 multipliers in each multiprocessor, two operations a cycle."""
    promised = CHIP["multiprocessors"] * 128 * 2 * CHIP["clock"] / 1e12
    of_promised = DENSE["double_buffered"]["tflops"] / promised
    limit = overheads.recorded("overheads")["limits"]["matrix"] / 1e12
    return round(promised) == 67 and round(limit) == 51 and 0.65 < of_promised < 0.75


def tiled_rate() -> bool:
    return round(DENSE["tiled"]["tflops"], 1) == 7.8


def latencies() -> bool:
    found = WAITS["latencies"]
    shown = {"shared memory": 30, "L1 cache": 40, "L2 cache": 290, "global memory": 680}
    return all(abs(found[name] / cycles - 1) < 0.1 for name, cycles in shown.items())


def threads() -> bool:
    wait = 680 / CHIP["clock"]
    most = CHIP["multiprocessors"] * CHIP["warps"] * 32
    return round(wait * 1e6, 2) == 0.34 and round(4.2e12 * wait / 8, -4) == 180_000 and most == 270_336


def all_threads() -> bool:
    last = WAITS["in_flight"][-1]
    return last["threads"] == 270_336 and round(last["bytes_a_second"] / 1e12, 1) == 3.0


def spare_column() -> bool:
    return 2 * WAITS["tiles"]["16"] < WAITS["tiles"]["rows of 16"]


def widths() -> bool:
    return WAITS["tiles"]["32"] < WAITS["tiles"]["16"] < WAITS["tiles"]["8"]


def lost_barrier() -> bool:
    small, large = WAITS["lost_barrier"]["64"], WAITS["lost_barrier"]["1024"]
    return len(small) == 5 and not any(small) and len(set(large)) == len(large) == 5 and min(large) > 0


def reads() -> bool:
    cube = {"batch": 32, "n_in": 32, "n_out": 32}
    naive = picture.show("dense_forward", "naive", **cube, block=(32, 4)).accesses
    narrow = picture.show("dense_forward", "tiled", **cube, block=(8, 8), TILE=8).accesses
    alone = picture.show("one_sample", "shared", n_in=128, n_out=128).accesses["W"]
    return (
        naive["A"].reads == naive["W"].reads == naive["W"].sectors * 32 // 32 == 32**3
        and narrow["A"].reads == narrow["W"].reads == 4096
        and (alone.reads, alone.sectors) == (16_384, 16_384)
    )


def reads_of_the_tile() -> bool:
    seen = picture.show("turn_round", "shared", n=70).accesses["tile"]
    return seen.reads == 70 and 3 * 70 // 4 == 52


def swapped() -> bool:
    """A warp of 32 × 8 threads writes 32 neighbours; with x and y swapped, cells of eight rows."""
    seen = picture.show("add_bias", "naive", batch=8, n=64, block=(32, 8)).accesses["Z"]
    return seen.sectors / (8 * 64 / 32) == 4


BY_HAND = "derived: from the sizes that the sentence names"
CLAIMS = [
    Claim("cores", "Data sheets call the 128 multipliers of each SM *cores*", why="source: NVIDIA's data sheets"),
    Claim("hierarchy", "| the threads of a block | 30 |", once=latencies),
    Claim("hierarchy", "| an SM | 40 |", once=latencies),
    Claim("hierarchy", "| all SMs | 290 |", once=latencies),
    Claim("hierarchy", "| all, and the CPU by copies | 680 |", once=latencies),
    Claim("latency", "waits about 700 cycles", once=latencies),
    Claim("latency", "With enough warps, one is always ready", why="definition: of enough"),
    Claim("latency", "each number is 680 cycles of 1.98 GHz away", once=latencies),
    Claim("waits-answer", "in 0.34 µs: 23 MB/s", once=threads),
    Claim("waits-answer", "that takes 180,000 threads", once=threads),
    Claim("waits-answer", "An H200 holds 270,336", once=threads),
    Claim("waits-answer", "the measured 270,336 threads copy 3.0 TB/s", once=all_threads),
    Claim(
        "rows-or-columns-answer", "of 64 bytes, 16 numbers side by side", why="source: data sheets of x86 processors"
    ),
    Claim("rows-or-columns-answer", "Row by row, all 16 are used.", why=BY_HAND),
    Claim("coalescing", "it takes 32 sectors, and of each, 28 bytes are thrown away", why=BY_HAND),
    Claim("coalescing-answer", "since the other 28 bytes are wanted in the next steps", why=BY_HAND),
    Claim("order-words", "touch 32,768 in", once=reads),
    Claim("turn-spec", "a right kernel makes 70 reads", once=reads_of_the_tile),
    Claim("one-words", "the check allows 1,024 reads of", why=BY_HAND),
    Claim("one-spec", "= 0, 64, 128, … below", why="definition: what is to be written"),
    Claim("one-spec", "16,384 times from global memory; the check allows 2,048", once=reads),
    Claim("one-answer", "is read 16,384 times as ever", once=reads),
    Claim("tile-count-answer", "T = 8 numbers are 32 bytes", why=BY_HAND),
    Claim("banks", "numbers 0 and 32 share bank 0, numbers 1 and 33 bank 1", why="definition: of 32 banks"),
    Claim("banks-answer", "the first and the last share bank 0", why=BY_HAND),
    Claim("banks-answer", "in banks 0, 16, 0, 16, …: eight numbers in each", why=BY_HAND),
    Claim("banks-answer", "takes less than half the time with the spare column", once=spare_column),
    Claim("tiled-budget", "the naive kernel reads", once=reads),
    Claim("tiled-budget", "which a tile of width 8 does", once=reads),
    Claim("race-on-gpu", "was right at 64³ in five runs of five, and wrong at 1,024³ in each", once=lost_barrier),
    Claim("ladder-words", "reads 16 times fewer numbers than", why="derived: tiles are 16 wide"),
    Claim("ladder-answer", "273, 22.5, 17.5 and 2.8 ms", once=seconds),
    Claim("ladder-answer", "**12 times** as fast as", once=factors),
    Claim("ladder-answer", "Sharing adds a factor of **1.3**", once=factors),
    Claim("ladder-answer", "numbers, 550 GB, in 22.5 ms", once=caches),
    Claim("ladder-answer", "six times what the memory can deliver", once=caches),
    Claim("ladder-answer", "the caches did most of the sharing", once=caches),
    Claim("ladder-next", "at most a fifth is left of the 67 TFLOP/s", once=rates),
    Claim("ladder-next", "The kernel reaches 7.8", once=tiled_rate),
    Claim("try", "Then run the one with 16 again", why="definition: what to do"),
    Claim("try-answers", "4 sectors: 32 threads write 32 neighbours", once=swapped),
    Claim("try-answers", "8 sectors for 8 rows, and 24 threads of each warp idle", why=BY_HAND),
    Claim("try-answers", "never reach the barrier, and load nothing", why="derived: they have returned"),
    Claim("try-answers", "On a GPU since 2017", why="source: NVIDIA's tuning guide for Volta"),
    Claim("try-answers", "every number is fetched twice as often as with 16", why="derived: tiles half as wide"),
    Claim("try-answers", "16 is faster than 8 at 1,024³, and 32 faster than 16", once=widths),
    Claim("try-answers", "48 tiles of 16, but 12 of 32, for 132 SMs", why=BY_HAND),
    Claim("try-answers", "those of the columns 5 to 7: 12 of 32", why=BY_HAND),
    Claim("end", "order 11 times, sharing 1.3 times", once=orders),
    Claim("appendix", "Of an H200 that is 67 TFLOP/s", once=rates),
    Claim("appendix", "cuBLAS reached 51", once=rates),
    Claim("appendix", "limit* is always the measured one", why="definition: of the column"),
]
