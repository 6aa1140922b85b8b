"""Three questions at the head of each notebook, about earlier ones: from one, three and six notebooks before."""

from typing import NamedTuple


class Question(NamedTuple):
    """A question with one right answer, a number or the letter of a choice.

    A number is right if it differs from `answer` by at most `within`.
    """

    notebook: str  # that it is about, such as "05"
    asks: str
    answer: float | str
    why: str
    choices: tuple[str, ...] = ()
    within: float = 0.0


QUESTIONS: dict[str, tuple[Question, ...]] = {
    # before notebook 02
    "02": (),
    # before notebook 02b
    "02b": (),
    # before notebook 03
    "03": (),
    # before notebook 03b
    "03b": (),
    # before notebook 04
    "04": (),
    # before notebook 05
    "05": (),
    # before notebook 05b
    "05b": (),
    # before notebook 05c
    "05c": (),
    # before notebook 06
    "06": (
        Question(
            "05b",
            "A kernel for the weight gradient of a layer 60 → 10 gives each weight a thread. The batch has 32 samples. "
            "How many products does one thread add up?",
            32,
            "A thread owns one weight, and every sample contributes one product to its gradient. So the loop runs over "
            "the batch, whatever the size of the layer; the size says how many threads there are, 600.",
        ),
        Question(
            "05",
            "A sigmoid neuron of a hidden layer has the activation 0.5. The deltas of the two neurons above it are 0.4 "
            "and −0.2, and the weights to them 1 and 2. What is its delta?",
            0.0,
            "By (4b) the deltas are multiplied by the weights and added: 0.4 · 1 − 0.2 · 2 = 0. Times the slope, which "
            "is 0.25 at this activation, that stays 0: the neuron's two effects on the cost cancel.",
            within=0.001,
        ),
        Question(
            "03",
            "A layer 30 → 60 processes a batch of 10 samples, Z = A Wᵀ + b. The batch grows to 100. What grows "
            "with it?",
            "b",
            "W and b belong to the layer, so their number stays. Each sample needs 60 sums of 30 products, so the "
            "arithmetic grows by ten, and W, once read, is used by ten times as many samples.",
            (
                "the number of weights",
                "the arithmetic, but not the number of weights",
                "the arithmetic and the number of weights",
                "neither: a batch is one matrix product",
            ),
        ),
    ),
    # before notebook 07
    "07": (
        Question(
            "06",
            "With η = 1000 the training cost of a sigmoid network has stood still since the first epoch. Why?",
            "c",
            "The first steps made the weights so large that the sigmoids are at 0 or 1, where their slopes are 0. Then "
            "every gradient is 0. The network gives everybody the same answer, so it is neither trained nor stuck in a "
            "valley.",
            (
                "it has reached the lowest cost",
                "it jumps from one side of a valley to the other",
                "its sigmoids are saturated, so the gradients are 0",
                "a batch of 10 is too small",
            ),
        ),
        Question(
            "05b",
            "A thousand threads each own one delta and add it to the bias gradient of its neuron, with a plain +=. "
            "What can happen?",
            "b",
            "Adding means reading, adding and writing. If two threads read the same old sum, the one that writes last "
            "overwrites the other's part. If each thread owned a bias and gathered its deltas, nothing could be lost.",
            (
                "nothing: addition works in any order",
                "the sum misses deltas",
                "the sum contains deltas twice",
                "the kernel stops with an error",
            ),
        ),
        Question(
            "03b",
            "An array is stored row after row, with 10 columns, counted from 0. At which index of the flat array is "
            "the element in row 3, column 4?",
            34,
            "Three whole rows of 10 elements come first, then 4 elements of its own row: 3 · 10 + 4.",
        ),
    ),
    # before notebook 08
    "08": (),
    # before notebook 08b
    "08b": (),
    # before notebook 09
    "09": (),
    # before notebook 10
    "10": (),
    # before notebook 11
    "11": (),
    # before notebook 12
    "12": (),
    # before notebook 12b
    "12b": (),
    # before notebook 13
    "13": (),
    # before notebook 14
    "14": (),
}
