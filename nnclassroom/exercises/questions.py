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
    "03b": (
        Question(
            "03",
            "A layer with 5 inputs and 3 neurons reads a batch of 8 samples. How many numbers has the matrix W?",
            15,
            "W has a row for each neuron and a column for each input, 3 × 5. The batch changes A and Z, not W.",
        ),
        Question(
            "02b",
            "A kernel runs on 1,000 elements in blocks of 256 threads. How many threads of the last block have none?",
            24,
            "Four blocks have 1,024 threads; those with i ≥ 1,000 are 24. The guard keeps them from writing.",
        ),
        Question(
            "01",
            "A perceptron answers 1 and the target is 0. Which way do its weights move?",
            "b",
            "The update adds rate · (y − a) · x, and y − a is −1 here: the inputs are taken away from the weights.",
            ("along the inputs x", "against the inputs x", "not at all"),
        ),
    ),
    # before notebook 04
    "04": (
        Question(
            "03b",
            "A tile of 16 × 16 numbers of A serves a block of 16 × 16 threads. How often is each of its numbers used?",
            16,
            "Each number of A belongs to one row of Z, of which the block computes 16 neurons: it is loaded once and "
            "used 16 times.",
        ),
        Question(
            "02",
            "The scores of three classes are 1, 2 and 4. All grow by 100. What becomes of the softmax?",
            "c",
            "The exponentials all grow by the same factor, which the division by their sum takes away again.",
            ("the largest probability grows", "all probabilities become more alike", "nothing changes"),
        ),
        Question(
            "00",
            "A screening finds 8 of 10 ill people, and calls 12 healthy ones ill. What is its precision, in per cent?",
            40,
            "Of 20 people who are called ill 8 are: 8 / 20. The recall is 8 / 10.",
            within=0.5,
        ),
    ),
    # before notebook 05
    "05": (
        Question(
            "04",
            "The true class has the probability 1 / e. What does cross-entropy charge for it?",
            1,
            "The cost is −log of the probability, and −log(1 / e) is 1.",
            within=0.01,
        ),
        Question(
            "03",
            "A dense layer computes Z = A Wᵀ + b. In which of these is one weight of W used?",
            "b",
            "A weight joins one input and one neuron. It is used for every sample, and for no other neuron.",
            ("in one number of Z", "in one column of Z", "in one row of Z", "in all of Z"),
        ),
        Question(
            "01",
            "A network with two hidden neurons that step computes XOR. Which of these cannot, whatever its weights?",
            "a",
            "One neuron draws one line, and no line has both corners of a class on the same side.",
            ("one neuron", "three hidden neurons", "four hidden neurons"),
        ),
    ),
    # before notebook 05b
    "05b": (
        Question(
            "05",
            "All deltas of the output layer become twice as large. What becomes of the gradients below it?",
            "b",
            "(4b), (4c) and (4d) only multiply deltas by other numbers and add up: everything below doubles too.",
            ("they stay", "they double", "they become four times as large"),
        ),
        Question(
            "03b",
            "The 32 threads of a warp read 32 floats that lie 1,024 numbers apart. How many sectors is that?",
            32,
            "A sector is 32 bytes, eight floats side by side. Here each float lies in a sector of its own.",
        ),
        Question(
            "02",
            "The slope of the sigmoid is computed from its own value a. What is it where a = 0.9?",
            0.09,
            "σ' = a (1 − a) = 0.9 · 0.1.",
            within=0.001,
        ),
    ),
    # before notebook 05c
    "05c": (),
    # before notebook 06
    "06": (),
    # before notebook 07
    "07": (),
    # before notebook 08
    "08": (
        Question(
            "07",
            "Of 1,000 transactions 20 are fraud. A network finds 15 of these, and raises 10 false alarms. "
            "What is its precision for fraud?",
            0.6,
            "It raises 25 alarms, and 15 of them are right: 15 / 25. (Its recall is 15 / 20.)",
            within=0.005,
        ),
        Question(
            "05b",
            "In bias_gradient one thread sums a whole column of D. Why does it need no atomics?",
            "b",
            "A thread that owns a result gathers: nobody else writes there. The order of the additions is its own too.",
            (
                "a sum of float32 numbers does not depend on their order",
                "each result is written by one thread only",
                "the threads of a warp run in step",
                "a GPU adds in global memory one thread after the other",
            ),
        ),
        Question(
            "03b",
            "Thread t of a warp reads x[8 * t], a float32, and x begins at a multiple of 32 bytes. How many sectors of "
            "32 bytes does the warp touch?",
            32,
            "8 numbers of 4 bytes are 32 bytes, so each thread's number is in a sector of its own. With x[t] it is 4.",
        ),
    ),
    # before notebook 08b
    "08b": (
        Question(
            "08",
            "A step launches 20 kernels. A launch takes the CPU 5 µs, and each kernel runs for 8 µs on the GPU. "
            "About how many µs is it from the first launch until the last kernel has ended?",
            165,
            "The first launch takes 5 µs. From then on the GPU always has a kernel to run: 20 times 8 µs.",
            within=5,
        ),
        Question(
            "06",
            "How many updates do three epochs with 1,000 samples and batches of 30 make, if a last, smaller batch "
            "counts too?",
            102,
            "33 full batches hold 990 samples, and the last 10 are the 34th batch: 34 updates an epoch.",
        ),
        Question(
            "04",
            "256 threads of a block add up 256 numbers in shared memory, as a tree. How many rounds does it take?",
            8,
            "Each round halves the number of sums: 256, 128, 64 … 1. That is log2(256), and a barrier after each.",
        ),
    ),
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
