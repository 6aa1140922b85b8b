"""The book's own words, in English. The book in a different language reads a translated copy of this file."""

TITLE = "nncourse"
DESCRIPTION = """\
A course in Jupyter notebooks: from one artificial neuron to networks trained by CUDA kernels that you wrote."""
VERSION = "version {version}"
COPYRIGHT = "the authors of nncourse; text and figures CC BY 4.0, code BSD-3-Clause"
LANGUAGE = "English"  # the language's own name, on the link that leads here

# Headings, and titles in the list of pages
NOTEBOOKS = "Notebooks"
REFERENCE = "Reference"
INSTRUCTORS = "For instructors"
MORE = "More"
SEARCH = "Search the course"
LIST_OF_PAGES = "Show or hide the list of pages"
ON_THIS_PAGE = "Show or hide the headings of this page"
PAGES = "Pages of the book"
HEADINGS = "Headings of this page"
PAGES_BELOW = "Show or hide the pages below this one"
NOTEBOOK_HEADINGS = ("notebook", "teaches")

# The front page
SLOGAN = """\
**Begin with one neuron, and end with networks trained by CUDA kernels that you wrote.** Here is a small network. Each
square shows the output of one neuron over the plane; the large picture shows the output of the network."""
PRESS_START = """\
Press *Start*. Then remove neurons: how few are enough for the rings? [Notebook 00](notebooks/00_start_here.ipynb)
begins with this network, and by notebook 06 you have written the code that trains it."""
YOUR_KERNEL = "Your kernel, and its verdict"
KERNEL_WRONG = "A CUDA kernel computes each number in a thread of its own. You write one like this in a minute:"
KERNEL_RIGHT = """\
The kernel is judged at once, even on a laptop without a GPU, where it runs thread by thread. It is wrong because the
last block has more threads than there are numbers left. With a guard it is right:"""
FOR_WHOM_TITLE = "Who it is for"
FOR_WHOM = (
    "You know some Python, and what a derivative is. You need not know anything about neural networks, C or GPUs.",
    "You want to understand what happens inside: you write each step yourself, and see how fast it is and why.",
    "You teach: the course has commands that hand it out, collect your students' work, and mark it.",
)
HOW = "How the course works"

# README's picture
FRONT_NETWORK = "30 inputs, two hidden layers, one output"
FRONT_COST = "cost on breast_cancer"
FRONT_TEST = "test data"

# The box on a notebook's page
TRY_IT = "Try it"
TRY_DOWNLOAD = "**Download** {link}: this notebook, ready to work in, without the outputs that this page shows."
TRY_ONLINE = "**Run it online**, without an installation: {links}. Your work is lost when the session ends."
TRY_RUN = """\
**Run it on your computer**: get a clone{address}, or the .zip from your lecturer, and run `make lab` in its folder. It
installs the package that the notebook imports, and opens your own copies of all notebooks in JupyterLab. No GPU is
needed."""
TRY_ELSEWHERE = "Not on Linux? The [front page]({front}) says what to do."
NO_SCRIPT = "There is an interactive widget here, if your browser allows JavaScript."

# What is folded away until you have made up your mind
PREDICT = "**Predict, then run.**"  # as the notebooks have it
SHOW_OUTPUT = "Predicted? Show the output"
HIDE_OUTPUT = "Hide the output"

# What the page's scripts show
ENLARGE = "Enlarge this figure"
CLOSE = "Close"
MOVE_SIDEWAYS = "Wider than the page: it scrolls sideways"

# The page for addresses that do not exist
NOT_FOUND = "No such page"
NOT_FOUND_WORDS = "The course has no page at this address. It begins here:"

# The reference
OPERATIONS_TITLE = "Operations and kernels"
REFERENCE_INTRODUCTION = """\
An *operation* is an equation with a contract, which says what arrays go in and what comes out. A *kernel* is one way to
compute an operation, on one device. These pages are made from the package, and show the source of each of its kernels.

In a notebook, `print(dense_forward)` lists an operation's kernels, and `check(dense_forward, "tiled")` compares one of
them with the reference. Below each CUDA kernel, a picture shows its memory accesses on small arrays, as `picture.show`
draws them. For a *naive* kernel the picture has smaller blocks than usual, so that the arrays fill some of them."""
SPOILERS = """\
Many of these kernels are answers to exercises. You learn more if you write yours first."""
OPERATION = "operation"
FORMULA = "what it computes"
OPERATIONS_OF_NETWORKS = "Operations of networks"
OPERATIONS_OF_EXERCISES = "Operations used only in exercises"
CONTRACT_HEADINGS = ("name", "shape", "elements", "role")
ARGUMENT, RESULT, IN_PLACE = "argument", "result", "argument, changed in place"
ONE_NUMBER, ANY_SHAPE = "one number", "any, with {size} elements"
WHOLE, REAL, OBJECT = "int32", "float32", "a Python object"
CONDITIONS = "Sizes: {conditions}."
CUDA_TAKES = "A CUDA kernel takes {arguments}."
EXERCISE_IN = "An exercise of {notebooks}."
KERNEL = "{names}, {device}"
KERNEL_IN = "In {file}."
LAUNCHED = "In {file}, launched with blocks of {block} threads."
COMPILED = "Numba compiles the same code."
CALLED = "CUDA and C code that these kernels launch"
AND = "and"
"""Between the last two names of a list."""
