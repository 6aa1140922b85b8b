"""A test before and after the course: two forms of twelve questions on what the course teaches.

Question n has the same topic in both forms. Half of a class takes form A before the course and form B after it; the
other half takes them in the opposite order. So a harder form changes the results before and after the course alike.
"""

from typing import NamedTuple

LETTERS = "abcd"


class Question(NamedTuple):
    """`right` is the letter of the correct choice, `slip` the letter of the choice that shows the misconception."""

    topic: str
    text: str
    choices: tuple[str, str, str, str]
    right: str
    slip: str
    misconception: str


A = (
    Question(
        "chain rule",
        "Let y = f(u) and u = g(x). Near a certain x, u grows 3 times as fast as x, and y grows 2 times as fast as u. "
        "How fast does y grow, compared with x?",
        ("2 times as fast", "3 times as fast", "5 times as fast", "6 times as fast"),
        "d",
        "c",
        "the slopes of functions in a chain are added",
    ),
    Question(
        "shapes",
        "A dense layer has 20 inputs and 5 neurons. Its weight matrix has one row for each neuron. What is the shape "
        "of the gradient that updates the weights after a batch of 8 samples?",
        ("(8, 5)", "(5, 20)", "(8, 20)", "(8, 5, 20)"),
        "b",
        "d",
        "each sample of a batch keeps its own gradient",
    ),
    Question(
        "descent",
        "With learning rate 0.1 the cost of a network falls slowly and steadily. With learning rate 10 it jumps up and "
        "down and grows. What is the most likely reason?",
        (
            "the steps are so long that they overshoot the minimum",
            "the network has too few neurons",
            "the training is stuck in a local minimum",
            "the gradient has the wrong sign",
        ),
        "a",
        "c",
        "a cost that does not fall is stuck in a local minimum",
    ),
    Question(
        "overfitting",
        "The cost on the training data is still falling. The cost on validation data, which are not used for training, "
        "has been rising for ten epochs. What is the best thing to do?",
        (
            "continue the training, since the training cost is falling",
            "take the weights of the epoch with the lowest validation cost",
            "train on the validation data too, and keep measuring on them",
            "train a larger network",
        ),
        "b",
        "a",
        "a lower training cost always means a better network",
    ),
    Question(
        "rare classes",
        "One in every 1,000 card payments is fraud. A program calls every payment legitimate. What is its accuracy, "
        "and how much of the fraud does it find?",
        ("99.9 %, and none", "50 %, and half of it", "0.1 %, and none", "99.9 %, and nearly all of it"),
        "a",
        "d",
        "a high accuracy means that the rare class is found",
    ),
    Question(
        "softmax",
        "A softmax function returns 0.7, 0.2 and 0.1. You add 5 to each of its three inputs. What does it return now?",
        ("5.7, 5.2 and 5.1", "three numbers that are closer together", "0.7, 0.2 and 0.1", "a first number above 0.7"),
        "c",
        "d",
        "softmax depends on the size of its inputs, not on their differences",
    ),
    Question(
        "activations",
        "You remove all activation functions from a network of five dense layers. What can it still learn?",
        (
            "the same as before, but more slowly",
            "only what a single layer without an activation function can learn",
            "nothing, since all gradients are 0",
            "more than before, since no values are cut off",
        ),
        "b",
        "a",
        "more layers alone make a network more powerful",
    ),
    Question(
        "memory",
        "A is an array of float32 numbers in global memory. Thread t of a warp reads A[t] in one kernel, and A[32 * t] "
        "in another. Which of these reads is faster, and what is the main reason?",
        (
            "the first: a warp's numbers are next to each other in memory",
            "the second: the threads of a warp keep out of each other's way",
            "neither: a warp reads the same number of bytes in both",
            "the first: its threads do not have to multiply by 32",
        ),
        "a",
        "c",
        "the time of a read depends only on the number of bytes",
    ),
    Question(
        "races",
        "The variable sum is in global memory, and its value is 0. A kernel has 1,000 threads, and each of them runs "
        "sum = sum + 1 once. What is the value of sum afterwards?",
        ("always 1,000", "always 1", "from 1 to 1,000, and not always the same", "none, since the kernel fails"),
        "c",
        "a",
        "only one thread at a time runs a line of code",
    ),
    Question(
        "launches",
        "A training step of a small network runs 14 kernels on a GPU. Each of them takes 3 µs, but the step takes "
        "450 µs. What takes most of the time?",
        (
            "arithmetic with float32 numbers",
            "launching the kernels from Python, while the GPU waits",
            "copying data, since they do not fit into the GPU's memory",
            "barriers, at which the threads of a block wait",
        ),
        "b",
        "a",
        "a GPU spends all its time on arithmetic",
    ),
    Question(
        "scaling",
        "Nine tenths of a program's running time can be divided among devices; one tenth cannot. Which limit does the "
        "speedup approach as you use more and more devices?",
        ("9", "90", "no limit: twice the devices give twice the speedup", "10"),
        "d",
        "c",
        "twice the devices always give twice the speed",
    ),
    Question(
        "data parallel",
        "Four devices train copies of one network. In each step every device processes 32 samples of its own. What "
        "must they exchange to take the same steps as one device with 128 samples per step?",
        ("their gradients", "their costs", "their predictions", "nothing until the end of the training"),
        "a",
        "d",
        "copies that are trained separately can simply be averaged at the end",
    ),
)

B = (
    Question(
        "chain rule",
        "Let z = f(y) and y = g(x). At a certain x the slope of g is 4. At the y that belongs to this x, the slope of "
        "f is -0.5. What is the slope of z as a function of x there?",
        ("3.5", "-8", "-2", "4"),
        "c",
        "a",
        "the slopes of functions in a chain are added",
    ),
    Question(
        "shapes",
        "A dense layer has 6 inputs and 4 neurons. What is the shape of the gradient that updates its biases after a "
        "batch of 10 samples?",
        ("(10, 4)", "(10,)", "(6,)", "(4,)"),
        "d",
        "a",
        "each sample of a batch keeps its own gradient",
    ),
    Question(
        "descent",
        "All weights and biases of a network are 0 at the start. All neurons of its hidden layer have the same "
        "activation function. What happens to these neurons during training?",
        (
            "they stay identical, since they always get the same gradients",
            "they become different and useful, as from any other start",
            "they learn faster, since they have nothing to unlearn",
            "they get infinite gradients",
        ),
        "a",
        "b",
        "gradient descent finds good weights from any start",
    ),
    Question(
        "overfitting",
        "You try 50 settings of a network, and keep the one with the best score on the test data. What score will it "
        "most likely reach on new data?",
        ("the same score", "a slightly worse score", "a slightly better score", "that of an untrained network"),
        "b",
        "a",
        "a test score stays fair, however often you choose by it",
    ),
    Question(
        "rare classes",
        "A network gives each payment a score. A payment whose score is above a threshold counts as fraud. You lower "
        "the threshold. What happens to the number of frauds that are found, and to the number of false alarms?",
        (
            "more frauds are found, and there are fewer false alarms",
            "neither number changes, since the network is the same",
            "fewer frauds are found, and there are more false alarms",
            "more frauds are found, and there are more false alarms",
        ),
        "d",
        "b",
        "the network alone decides what is found",
    ),
    Question(
        "softmax",
        "For one sample, a network gives the right class a probability of 0.01, and another network gives it 0.4. Both "
        "networks predict a wrong class. How do their cross-entropy costs compare?",
        (
            "the first network has a much higher cost",
            "both have the same cost, since both are wrong",
            "the second network has a higher cost",
            "both costs are 0, since only right answers count",
        ),
        "a",
        "b",
        "cross-entropy counts wrong answers",
    ),
    Question(
        "activations",
        "The weighted sum of a sigmoid neuron is 20, but its output should be 0. The cost is the squared error. How do "
        "the neuron's weights move in one step of gradient descent?",
        ("far: the error is large", "in the wrong direction", "hardly at all: the slope is nearly 0", "straight to 0"),
        "c",
        "a",
        "the larger a neuron's error, the larger its step",
    ),
    Question(
        "memory",
        "A kernel adds two vectors of a million numbers. You run it on a different GPU, which has twice as many "
        "arithmetic units and the same memory bandwidth. How fast does it run there?",
        ("twice as fast", "four times as fast", "slower than before", "hardly any faster"),
        "d",
        "a",
        "the time of a kernel is the time of its arithmetic",
    ),
    Question(
        "races",
        "In a kernel, each thread of a block stores a number in shared memory. Then it reads the number that its "
        "neighbour has stored. What must come in between?",
        ("nothing: all threads run in step", "a barrier", "an atomic addition", "the launch of a second kernel"),
        "b",
        "a",
        "all threads of a block are always at the same line",
    ),
    Question(
        "launches",
        "A network of 30-16-1 neurons trains more slowly on a GPU than on a CPU. Each training step launches several "
        "kernels. What helps most?",
        ("a GPU with more memory", "more blocks for each kernel", "one launch for many steps", "16-bit numbers"),
        "c",
        "b",
        "more threads make any kernel faster",
    ),
    Question(
        "scaling",
        "A program takes 100 s on one device and 30 s on four. What are the speedup and the efficiency on four?",
        ("3.3 and 83 %", "4 and 100 %", "3.3 and 30 %", "70 and 25 %"),
        "a",
        "b",
        "the speedup equals the number of devices",
    ),
    Question(
        "data parallel",
        "In one training step, one device takes 100 samples and another takes 50. Each computes the mean gradient of "
        "its own samples. What is the mean gradient of all 150 samples?",
        (
            "half the sum of the two",
            "two thirds of the first plus one third of the second",
            "the sum of the two",
            "the first, since it has more samples",
        ),
        "b",
        "a",
        "means can be averaged, however many numbers each stands for",
    ),
)

FORMS = {"A": A, "B": B}
