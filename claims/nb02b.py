"""Evidence for notebook 02b."""

from claims import Claim
from nnclassroom.exercises.catalogue import find
from nnclassroom.figures.picture import show
from nnclassroom.judge.cases import cases

BY_A_BLOCK = """
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x) y[i] += a * x[i];
}
"""


def sizes_of_the_check() -> bool:
    tried = {case.arguments[0].size for case in cases(find("sigmoid"))}
    return {1, 255, 256, 257} <= tried


def _touched(n: int) -> int:
    """How often elements of y are written by 4 blocks of 32 threads that go on by one block."""
    trace = show("saxpy", BY_A_BLOCK, n=n, block=32, grid=4).accesses.trace
    return sum(int(trace.memories[row["memory"]].name == "y") for row in trace.accesses) // 2


def several_blocks_from_element_32_on() -> bool:
    return (_touched(31), _touched(32), _touched(33), _touched(65)) == (31, 32, 34, 65 + 33 + 1)


CHIPS = "source: the makers' data sheets: 4 cores × 32 FLOP × 4.2 GHz; 3,584 cores × 2 FLOP × 1.58 GHz"
CLAIMS = [
    Claim("gpu-words", "has 4 cores and does about 0.5 TFLOP/s", why=CHIPS),
    Claim("words", "32 threads of a block", why="definition: a warp"),
    Claim("why-blocks", "an RTX A4000 has 48", why="source: NVIDIA's data sheet of the RTX A4000"),
    Claim("why-blocks", "are not a multiple of 32", why="definition: a warp has 32 threads"),
    Claim("guard-answer", "tries sizes such as 1, 255, 256 and 257", once=sizes_of_the_check),
    Claim("bare", "a Python integer is passed with 64 bits", why="source: CuPy's documentation of RawKernel"),
    Claim("now-try-answers", "From element 32 on several blocks", once=several_blocks_from_element_32_on),
    Claim("now-try-answers", "With up to 32 elements", once=several_blocks_from_element_32_on),
]
