"""A test before and after the course: twice twelve questions on what the course is for.

Question n of form A and question n of form B ask for the same thing in another case. Half of a class takes A before and
B after, the other half the other way round: then a form that is harder favours neither time.
"""

from typing import NamedTuple

LETTERS = "abcd"


class Question(NamedTuple):
    """choices: from a to d. right: the letter of the right one. slip: that of the usual misconception, in words."""

    topic: str
    text: str
    choices: tuple[str, str, str, str]
    right: str
    slip: str
    misconception: str


A = (
    Question(
        "chain rule",
        "y = f(u) and u = g(x). Near some x, u grows 3 times as fast as x, and y grows 2 times as fast as u. How "
        "fast does y grow as x grows?",
        ("2 times as fast", "3 times as fast", "5 times as fast", "6 times as fast"),
        "d",
        "c",
        "slopes of a chain are added",
    ),
    Question(
        "shapes",
        "A dense layer has 20 inputs and 5 neurons. It computes a batch of 8 samples. What is the shape of its "
        "weights' gradient, if a row belongs to a neuron?",
        ("(8, 5)", "(5, 20)", "(8, 20)", "(8, 5, 20)"),
        "b",
        "d",
        "each sample of a batch keeps a gradient of its own",
    ),
    Question(
        "descent",
        "With learning rate 0.1 the cost falls slowly and steadily. With 10 it jumps up and down and gets larger. "
        "What does the second run show?",
        (
            "steps so long that they go past the valley",
            "a network with too few neurons",
            "a local minimum",
            "that the gradient has the wrong sign",
        ),
        "a",
        "c",
        "whatever does not fall is stuck in a local minimum",
    ),
    Question(
        "overfitting",
        "The cost on the training data still falls. On other data it has risen for ten epochs. What do you do?",
        (
            "go on, since the training cost falls",
            "take the weights of the epoch where the other cost was lowest",
            "train with the other data too, and measure on them again",
            "make the network larger",
        ),
        "b",
        "a",
        "a lower training cost is a better network",
    ),
    Question(
        "thresholds",
        "One card payment of 1,000 is fraud. A program says of every payment that it is fine. What is its accuracy, "
        "and how many frauds does it find?",
        ("99.9 %, none", "50 %, half of them", "0.1 %, none", "99.9 %, nearly all"),
        "a",
        "d",
        "a high accuracy means that the rare class is found",
    ),
    Question(
        "softmax",
        "A softmax gives 0.7, 0.2 and 0.1. You add 5 to each of its three inputs. What does it give now?",
        ("5.7, 5.2 and 5.1", "numbers nearer to each other", "0.7, 0.2 and 0.1", "a larger first number"),
        "c",
        "d",
        "softmax depends on the size of its inputs, not on their differences",
    ),
    Question(
        "activations",
        "You take all activation functions out of a network with five layers. What can it still learn?",
        (
            "the same, but slower",
            "only what one layer without activation can learn",
            "nothing, since all gradients are 0",
            "more, since nothing is cut off",
        ),
        "b",
        "a",
        "more layers alone make a network more powerful",
    ),
    Question(
        "memory",
        "Thread t of a warp reads A[t] in one kernel, and A[32 * t] in another. Both read 32 numbers. Which is "
        "faster, and why?",
        (
            "the first: its numbers lie in few pieces of memory",
            "the second: the threads are not in each other's way",
            "both are alike: the same number of bytes is read",
            "the first: A is in shared memory there",
        ),
        "a",
        "c",
        "the cost of a read is the number of bytes asked for",
    ),
    Question(
        "races",
        "A thousand threads each do sum = sum + 1 on one number in global memory, which was 0. What is in it "
        "afterwards?",
        ("1,000", "always 1", "some number from 1 to 1,000", "an error"),
        "c",
        "a",
        "a line of code is done by one thread at a time",
    ),
    Question(
        "launches",
        "A step of a small network needs 14 kernels of 3 µs each. It takes 450 µs on a GPU. Where does the time go?",
        (
            "the arithmetic is slow in float32",
            "the GPU waits for the launches from Python",
            "the data do not fit into the GPU's memory",
            "the threads of a block wait at barriers",
        ),
        "b",
        "a",
        "time on a GPU is time for arithmetic",
    ),
    Question(
        "scaling",
        "Nine tenths of a program are divided among devices, one tenth is not. How many times as fast can it be with "
        "any number of devices?",
        ("9 times", "90 times", "as many times as there are devices", "10 times"),
        "d",
        "c",
        "twice the devices, twice the speed",
    ),
    Question(
        "data parallel",
        "Four devices train copies of a network. Each takes 32 samples of a step. What must they exchange, so that "
        "they compute what one device computes with 128 samples?",
        ("their gradients", "their costs", "their samples", "nothing until the end"),
        "a",
        "d",
        "copies that train apart can simply be put together at the end",
    ),
)

B = (
    Question(
        "chain rule",
        "z = f(y) and y = g(x). At some x the slope of g is 4, and at that y the slope of f is -0.5. What is the "
        "slope of z over x?",
        ("3.5", "-8", "-2", "4"),
        "c",
        "a",
        "slopes of a chain are added",
    ),
    Question(
        "shapes",
        "A dense layer has 6 inputs and 4 neurons. It computes a batch of 10 samples. What is the shape of its "
        "biases' gradient?",
        ("(10, 4)", "(10,)", "(6,)", "(4,)"),
        "d",
        "a",
        "each sample of a batch keeps a gradient of its own",
    ),
    Question(
        "descent",
        "A network starts with all weights 0, and its hidden neurons are alike. What happens in training?",
        (
            "the neurons stay alike: they get the same gradients",
            "the best starting point is found from there",
            "the cost falls faster, since nothing has to be unlearnt",
            "the gradient is infinite",
        ),
        "a",
        "b",
        "descent finds the way from any start",
    ),
    Question(
        "overfitting",
        "You try 50 settings of a network and keep the one with the best score on the test data. What is its score "
        "on new data, most likely?",
        ("the same", "a little worse", "a little better", "that cannot depend on what you tried"),
        "b",
        "a",
        "test data stay fair, however often one chooses by them",
    ),
    Question(
        "thresholds",
        "You lower the score from which a payment is called fraud. What happens to the frauds that are found, and to "
        "the false alarms?",
        (
            "more are found, fewer false alarms",
            "both stay, since the network is the same",
            "fewer are found, more false alarms",
            "more are found, more false alarms",
        ),
        "d",
        "b",
        "what is found is fixed by the network alone",
    ),
    Question(
        "softmax",
        "A network gives the right class the probability 0.01, and another network gives it 0.4. Both choose a wrong "
        "class. What does cross-entropy say of them?",
        (
            "the first costs far more",
            "the same: both are wrong",
            "the second costs more",
            "nothing: it counts right answers",
        ),
        "a",
        "b",
        "a cost counts wrong answers",
    ),
    Question(
        "activations",
        "A sigmoid neuron has the input 20, and its output should be 0. The cost is the squared error. How do its "
        "weights move in a step?",
        ("far, since it is so wrong", "in the wrong direction", "hardly at all: the slope is nearly 0", "to 0"),
        "c",
        "a",
        "the more wrong a neuron is, the larger is its step",
    ),
    Question(
        "memory",
        "A kernel adds two vectors of a million numbers. A GPU with twice as many units for arithmetic and the same "
        "memory runs it. How much faster is it?",
        ("twice", "four times", "it is slower", "hardly at all"),
        "d",
        "a",
        "the cost of a kernel is its arithmetic",
    ),
    Question(
        "races",
        "In a kernel each thread stores a number in shared memory and then reads its neighbour's. What has to stand "
        "in between?",
        ("nothing: threads run in step", "a barrier", "an atomic addition", "another kernel"),
        "b",
        "a",
        "all threads of a block are at the same line",
    ),
    Question(
        "launches",
        "A network of 30-16-1 neurons trains slower on a GPU than on a CPU, step by step. What helps most?",
        (
            "a GPU with more memory",
            "more blocks for each kernel",
            "one launch for many steps",
            "numbers of 16 bits",
        ),
        "c",
        "b",
        "more threads make any kernel faster",
    ),
    Question(
        "scaling",
        "A program takes 100 s on one device, and 30 s on four. What are its speedup and its efficiency?",
        ("3.3 and 83 %", "4 and 100 %", "3.3 and 30 %", "70 and 25 %"),
        "a",
        "b",
        "the speedup is the number of devices",
    ),
    Question(
        "data parallel",
        "One of two devices takes 100 samples of a step, the other 50. Each has the mean gradient of its samples. "
        "What is the mean over all 150?",
        (
            "half the sum of the two",
            "two thirds of the first and a third of the second",
            "the sum of the two",
            "the first, which has more samples",
        ),
        "b",
        "a",
        "means may be averaged, whatever is behind them",
    ),
)

FORMS = {"A": A, "B": B}
