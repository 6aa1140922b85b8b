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
    "06": (),
    # before notebook 07
    "07": (),
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
    "13": (
        Question(
            "12b",
            "A network is split over 4 devices as a pipeline. Each device takes 1 ms for each micro-batch, forward, "
            "and there are 12 micro-batches. After how many ms has the last one left the last device?",
            15,
            "The first leaves after 4 ms, and each of the other 11 comes 1 ms after the one before.",
        ),
        Question(
            "11",
            "An image of 6 × 6 pixels, no two alike, goes through a max-pool with windows of 2 × 2. All deltas "
            "from above are 1. How many of its pixels get a gradient of 0?",
            27,
            "There are 9 windows. In each the delta goes to the largest pixel alone.",
        ),
        Question(
            "08b",
            "A GPU fetches 4 TB and computes 40 TFLOP a second. A block with a tile of M × N elements does MN / "
            "(2 (M + N)) FLOP for each byte that it fetches. Which is the smallest tile that fetching does not limit?",
            "c",
            "The GPU computes 10 FLOP in the time of a byte. A square tile does M/4 of them for each byte.",
            ("10 × 10", "20 × 20", "40 × 40", "80 × 80"),
        ),
    ),
    # before notebook 14
    "14": (
        Question(
            "13",
            "A step takes 40 ms on one device, and 4 ms of them cannot be divided. If exchanges cost nothing, which "
            "speedup do many devices come near to and never reach?",
            10,
            "With many devices the divided part takes next to no time, and the 4 ms stay.",
        ),
        Question(
            "12",
            "Four members have 30, 10, 10 and 10 rows of a batch, and each has the mean gradient of its own rows. "
            "By which factor must the member with 30 rows multiply its gradient before all are added up?",
            0.5,
            "Each row must count alike: its mean stands for 30 of the 60 rows.",
            within=0.001,
        ),
        Question(
            "09",
            "Momentum of 0.9 and a learning rate of 0.01. In one direction the gradient stays at 1, step after step. "
            "How long do the steps become in that direction?",
            0.1,
            "V comes near to 1 + 0.9 + 0.81 + … = 10, and a step is the rate times V.",
            within=0.001,
        ),
    ),
}
