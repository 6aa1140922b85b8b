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
    "13": (),
    # before notebook 14
    "14": (),
}
