"""Three questions at the head of each notebook, about those one, three and six before; and some within the text."""

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
    "02": (
        Question(
            "01",
            "A neuron with a step has the weights 2 and −1 and the bias −0.5. For which input does it fire?",
            "b",
            "2·1 − 1·1 − 0.5 = 0.5 is above 0. The other three sums are −0.5, −0.5 and −1.5.",
            ("(0, 0)", "(1, 1)", "(1, 2)", "(0, 1)"),
        ),
        Question(
            "01",
            "The perceptron's rule, with η = 1, corrects the sample x = (3, −2), which should have fired. The bias "
            "is the weight of a constant input 1. By how much does the sum z of this sample grow?",
            14,
            "x, with the 1, is added to the weights, so z grows by x · x = 9 + 4 + 1.",
        ),
        Question(
            "00",
            "60 tumours are malignant. A network calls 50 malignant, 40 of them rightly. What is its recall, in %?",
            66.7,
            "Of the 60 that are malignant 40 were found: 40 / 60. Its precision is 40 / 50.",
            within=0.8,
        ),
    ),
    # before notebook 02b
    "02b": (
        Question(
            "02",
            "Three layers of one neuron each, weights 1, sigmoids at z = 0. What share of a change comes through?",
            0.0156,
            "Each layer multiplies it by the slope 0.25, and 0.25³ = 0.0156.",
            within=0.0007,
        ),
        Question(
            "01",
            "Both weights and the bias of a neuron with a step are multiplied by 10. What happens to its line?",
            "c",
            "All sums are 10 times as large, so their signs are the same, and z = 0 where it was 0.",
            ("it moves away from (0, 0)", "it turns", "nothing", "its two sides are swapped"),
        ),
        Question(
            "00",
            "A machine copies 20 GB/s and does 100 GFLOP/s. A kernel moves 6 GB and computes 50 GFLOP. How many "
            "seconds does it take at least?",
            0.5,
            "Moving takes at least 6 / 20 = 0.3 s, computing at least 50 / 100 = 0.5 s: the longer one counts.",
            within=0.005,
        ),
    ),
    # before notebook 03
    "03": (
        Question(
            "02b",
            "A kernel writes y[i] = x[2 * i], and its blocks have 64 threads. Which element of x does thread 10 of "
            "block 3 read?",
            404,
            "Its i is 3 · 64 + 10 = 202, and it reads x[2 · 202].",
        ),
        Question(
            "01",
            "A neuron with a step has one input x. The target is 1 at x = 1, and 0 at x = 0 and at x = 2. How many of "
            "the three points does the best neuron get wrong?",
            1,
            "Its border is a single point, so class 1 is all that is to the right of it, or all that is to the left.",
        ),
        Question(
            "02",
            "Softmax gets the scores 5, 5 and 5.693; log 2 is 0.693. What is the largest probability?",
            0.5,
            "Differences of scores become ratios: the third is e^0.693 = 2 times each of the others, so 2 of 4 parts.",
            within=0.01,
        ),
    ),
    # before notebook 03b
    "03b": (
        Question(
            "03",
            "A layer with 5 inputs and 3 neurons reads a batch of 8 samples. How many numbers does the matrix W have?",
            15,
            "W has a row for each neuron and a column for each input, 3 × 5. The batch changes A and Z, not W.",
        ),
        Question(
            "02b",
            "A kernel runs on 1,000 elements in blocks of 256. How many threads of the last block have no element?",
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
            "The exponentials all grow by the same factor, which the division by their sum cancels.",
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
            "A network with two hidden neurons, all with the step, can compute XOR. Which of these cannot compute it, "
            "whatever the weights?",
            "a",
            "One neuron draws one line, and no line has the corners of class 0 on one side and those of class 1 on the "
            "other.",
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
    "05c": (
        Question(
            "05",
            "A weight reaches the cost on two paths. The products of the slopes along them are 0.3 and −0.1. What is "
            "its gradient?",
            0.2,
            "Along a path slopes are multiplied; where paths meet, the products are added: 0.3 − 0.1.",
            within=0.001,
        ),
        Question(
            "05b",
            "A batch has 32 samples. In which of the four equations does the sum run over the samples?",
            "c",
            "A bias and a weight belong to all samples, so (4c) and (4d) add up over the batch. In (4a) and (4b) each "
            "sample keeps its own row.",
            ("in all four", "in (4a) and (4b)", "in (4c) and (4d)", "in none"),
        ),
        Question(
            "02",
            "A tanh neuron has the output 0.8. What is the slope of its activation there?",
            0.36,
            "The slope of tanh is 1 − a², computed from its own value: 1 − 0.64.",
            within=0.001,
        ),
    ),
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
    # before notebook 08c
    "08c": (
        Question(
            "08b",
            "A kernel needs 40 registers for each thread, and a multiprocessor has 65,536. For how many warps of 32 "
            "threads is there room, as far as registers go?",
            51,
            "A warp takes 32 · 40 = 1,280 registers, and 65,536 // 1,280 = 51.",
        ),
        Question(
            "07",
            "A test finds 9 of 10 faulty programs, and calls 9 of 90 right ones faulty. Of those that it calls faulty, "
            "what share are faulty?",
            0.5,
            "9 of 18. That is its precision; its recall is 0.9.",
        ),
        Question(
            "03b",
            "In a tiled kernel the barrier after the products is missing. What can go wrong?",
            "b",
            "Without it a fast warp stores the next tile while a slow one still reads this one. The barrier before the "
            "products guards the other direction.",
            (
                "a thread reads a number of the tile before it is stored",
                "a thread reads a number of the next tile too early",
                "the last tile is left out",
                "nothing, it is only slower",
            ),
        ),
    ),
    # before notebook 09
    "09": (
        Question(
            "08b",
            "A thread that computes one element of a matrix product reads 2 numbers for each product. How many "
            "products does it make for each number that it reads, if it computes 4 × 4 elements at a time?",
            2,
            "Per step it reads 4 numbers of the one matrix and 4 of the other, and makes 16 products of them: 16 / 8 = "
            "2, four times as many as before. That is why the ladder goes from shared memory to registers.",
        ),
        Question(
            "07",
            "One transaction in ten is a fraud, and a classifier has a certain precision and recall. Now frauds become "
            "ten times rarer; how it treats a fraud and an honest transaction stays the same. What falls?",
            "a",
            "Of the frauds it finds the same share as before. But the false alarms come from the many honest "
            "transactions, and their number stays, while that of the frauds among the flagged ones shrinks.",
            ("precision alone", "recall alone", "both", "neither"),
        ),
        Question(
            "05b",
            "In the weight gradient on the GPU each thread owns a weight and adds up over the batch. Why does it need "
            "no atomicAdd?",
            "c",
            "Threads conflict only where two of them write to the same cell. A thread that owns a result may read "
            "what others read too, which does no harm, but it alone writes its sum.",
            (
                "the threads of a warp run in step",
                "the sums are kept in shared memory",
                "only one thread writes each element of the result",
                "the order of additions does not matter",
            ),
        ),
    ),
    # before notebook 10
    "10": (
        Question(
            "09",
            "Along one direction the curvature is 20. What does plain descent with the learning rate 0.12 do there?",
            "c",
            "Each step multiplies the distance by 1 − 0.12 · 20 = −1.4: it changes sign and grows. The border is "
            "2 / 20 = 0.1; up to 0.05 there is no change of sign.",
            (
                "it comes nearer from one side",
                "it jumps from side to side and comes nearer",
                "it jumps from side to side and goes away",
                "it stays where it is",
            ),
        ),
        Question(
            "08",
            "A training step launches 12 kernels. Each computes for 2 µs, and the CPU needs 5 µs to launch one. "
            "About how many µs does a step take?",
            60,
            "A launch returns at once, so the GPU computes while the CPU prepares the next one. It is done long "
            "before: 12 · 5 µs of launches count, not 12 · 2 µs of work, nor the sum of both.",
            within=5,
        ),
        Question(
            "06",
            "A network trains on 1,000 samples for 4 epochs, in batches of 50. How often does each weight move?",
            80,
            "An epoch has 1,000 / 50 = 20 batches, each with one update of all weights; four epochs have 80.",
        ),
    ),
    # before notebook 11
    "11": (
        Question(
            "10",
            "An image of 10 × 10 pixels, a filter of 3 × 3, stride 2, no padding. How many rows does the output have?",
            4,
            "The filter's first row can begin in rows 0 to 7. In steps of 2 these are rows 0, 2, 4 and 6: "
            "(10 − 3) // 2 + 1 = 4.",
        ),
        Question(
            "08b",
            "A multiprocessor has 65,536 registers and room for 64 warps of 32 threads. A kernel takes 64 registers "
            "for each thread. How many warps are there at a time?",
            32,
            "A warp takes 32 · 64 = 2,048 registers, and 65,536 / 2,048 = 32: half of the room, an occupancy of 50 %. "
            "A fast kernel may have little of it.",
        ),
        Question(
            "06",
            "The cost of the training data falls in all 40 epochs, that of the validation data until epoch 15; then it "
            "rises. Which parameters do you keep?",
            "b",
            "From epoch 15 on the network learns what is true of the training data alone. Validation data choose; test "
            "data judge once, and must not choose.",
            (
                "those of epoch 40, with the lowest training cost",
                "those of epoch 15, with the lowest validation cost",
                "those with the lowest cost on the test data",
            ),
        ),
    ),
    # before notebook 12
    "12": (
        Question(
            "11",
            "A filter of 3 × 3 goes over an image of 28 × 28 with padding 1 and stride 1. How many products are "
            "added up in the gradient of the weight in its middle, for one image?",
            784,
            "This weight meets a pixel for each number of the map, and the map has 28 · 28 = 784: its gradient adds up "
            "delta times input at all these places. (A weight at the filter's edge meets padding too, which adds 0.)",
        ),
        Question(
            "09",
            "At every step the gradient of weight A is 1,000 times that of weight B. With Adam, how much longer are "
            "the steps of A?",
            "c",
            "Adam divides the mean of a weight's gradients by the root of the mean of their squares. A factor of 1,000 "
            "is in both, and cancels.",
            (
                "1,000 times",
                "about 32 times, the root of 1,000",
                "they are about as long",
                "A's are 1,000 times shorter",
            ),
        ),
        Question(
            "07",
            "A test set is cut into two parts, each with its own confusion matrix. In one 81 of 90 are right, in the "
            "other 5 of 10. How many per cent of the whole are right?",
            86,
            "Add the counts, and divide once: 86 of 100. The mean of 90 % and 50 % would be 70 %, as if the 10 "
            "counted as much as the 90.",
            within=0.5,
        ),
    ),
    # before notebook 12b
    "12b": (
        Question(
            "12",
            "Eight members add up vectors of 800 numbers in a ring. How many numbers does each member send?",
            1400,
            "2 (K − 1) = 14 steps, in each a chunk of 800 / 8 = 100 numbers.",
        ),
        Question(
            "10",
            "A convolution has 8 filters of 5 × 5 over 3 channels. How many parameters does it have, with biases?",
            608,
            "Each filter has 5 · 5 weights for each of the 3 channels, and one bias: 8 · (75 + 1).",
        ),
        Question(
            "08",
            "A step launches 12 kernels, each of which runs for 2 µs. A launch costs the CPU 5 µs, and it does not "
            "wait for the kernels. About how many ms do 100 steps take?",
            6.0,
            "The GPU has ended a kernel before the next one comes, so launches decide: 100 · 12 · 5 µs = 6 ms. Only "
            "with a wait after each launch would it be 5 + 2 µs.",
            within=0.1,
        ),
    ),
    # before notebook 13
    "13": (
        Question(
            "12b",
            "A network is split over 4 devices as a pipeline. In the forward pass each device takes 1 ms for "
            "each of 12 micro-batches. After how many ms has the last one left the last device?",
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
            "A GPU fetches 4 TB and computes 40 TFLOP a second. A block with a tile of M × N elements does "
            "MN / (2 (M + N)) FLOP for each byte that it fetches. What is the smallest tile not limited by fetching?",
            "c",
            "The GPU computes 10 FLOP in the time of fetching one byte. A square tile does M/4 of them for each byte.",
            ("10 × 10", "20 × 20", "40 × 40", "80 × 80"),
        ),
    ),
    # before notebook 14
    "14": (
        Question(
            "13",
            "A step takes 40 ms on one device, and 4 ms of them cannot be divided. If exchanges cost nothing, which "
            "speedup do many devices approach but never reach?",
            10,
            "With many devices the divided part takes next to no time, and the 4 ms stay.",
        ),
        Question(
            "12",
            "Four members have 30, 10, 10 and 10 rows of a batch, and each has the mean gradient of its own rows. "
            "By which factor must the member with 30 rows multiply its gradient before all are added up?",
            0.5,
            "Each row must count equally: its mean stands for 30 of the 60 rows.",
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
    # before notebook 15
    "15": (
        Question(
            "14",
            "A block computes A + F(A), without ReLU, and its body F lets no gradient through at all. The gradient of "
            "the block's output is 3. What is the gradient of A?",
            3,
            "The shortcut passes the gradient on as it is, whatever the body does.",
        ),
        Question(
            "12b",
            "Training saves a checkpoint after every second epoch, and an epoch takes 10 minutes. The machine fails 4 "
            "minutes into epoch 6. How many minutes of training are lost?",
            14,
            "The last checkpoint is that after epoch 4: all of epoch 5 is lost, and the 4 minutes.",
        ),
        Question(
            "10",
            "A convolution has 6 filters of 3 × 3 over one channel, and biases. How many parameters does it have if "
            "the images become twice as wide and twice as high?",
            60,
            "A filter has the same 9 weights and one bias at every position: 6 · 10, whatever the size of the images.",
        ),
    ),  # before notebook 15b
    "15b": (
        Question(
            "15",
            "In causal attention all scores are 0, and the values of the positions 0 to 3 are 8, 4, 0 and 100. What "
            "is the result at position 2?",
            4,
            "It sees positions 0 to 2, with a weight of a third each: 12 / 3.",
        ),
        Question(
            "13",
            "A job takes 120 s at 500 W, or 100 s at 700 W. Which one has the smaller product of energy and delay?",
            "b",
            "60 kJ · 120 s = 7.2 MJ s, and 70 kJ · 100 s = 7.0 MJ s: more energy, but a smaller product.",
            ("that of 120 s", "that of 100 s", "both are equal"),
        ),
        Question(
            "11",
            "A digit's image has 28 × 28 pixels. It goes through a convolution of 3 × 3 with padding 1, a max-pool of "
            "2 × 2, and both once more, with 4 filters each. How many numbers does the dense layer get?",
            196,
            "Padding keeps the size, and each pool halves it: 14 × 14, then 7 × 7, from each of 4 filters: 4 · 49.",
        ),
    ),
}

# Within notebooks, about their own records.
IN_TEXT: dict[str, tuple[Question, ...]] = {
    "race": (
        Question(
            "08c",
            "In racecheck's report, the barrier in line 16 is between the write in line 15 and the read in line 17. "
            "Which two accesses race nevertheless?",
            "c",
            "Within one turn of the loop the barrier in line 16 separates them. Between the read in line 17 and the "
            "write in the next turn there is none now: it was in line 18.",
            (
                "the write, and a read of the same turn of the loop",
                "two writes of the same turn",
                "a read, and the write of the next turn",
                "two reads, by different threads",
            ),
        ),
    ),
    "counters": (
        Question(
            "08c",
            "“naive is slow because it uses up the bandwidth of global memory.” Which row of the table refutes this?",
            "b",
            "0 %: hardly anything comes from global memory. What naive asks for is in the L1 cache, and L1 is 99 % "
            "busy, with 16.5 sectors for each request.",
            ("time", "traffic of global memory", "places for warps in use", "sectors a request"),
        ),
        Question(
            "08c",
            "“naive is slow because there are too few warps to hide the waits.” Which row refutes this?",
            "d",
            "More than 90 % of the places are in use, as in the two kernels that are 12 and 15 times as fast.",
            (
                "found in the L1 cache",
                "multiply-add instructions",
                "traffic of L1 and shared memory",
                "places for warps in use",
            ),
        ),
    ),
}
