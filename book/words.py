"""The book's own words, in English. The book in another language reads a translated copy of this file."""

TITLE = "nncourse"
DESCRIPTION = """\
A course in Jupyter notebooks, from one artificial neuron to networks that are trained by CUDA kernels of your own."""
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
**From one neuron to networks that CUDA kernels train, and you write the kernels.** Here is a small network. Each
square shows what a neuron answers over the plane; the large picture shows what the network answers."""
PRESS_START = """\
Press *Start*. Then take neurons away: how few are enough for the rings? [Notebook 00](notebooks/00_start_here.ipynb)
begins with this network, and by notebook 06 you have written what moves it."""
YOUR_KERNEL = "Your kernel, and its verdict"
KERNEL_WRONG = "A kernel computes each number in a thread of its own. One like this is written in a minute:"
KERNEL_RIGHT = """\
It is judged at once, on a laptop without a GPU too: there it runs thread by thread. The last block has more threads
than there are numbers. With a guard:"""
FOR_WHOM_TITLE = "Who it is for"
FOR_WHOM = (
    "You know some Python, and what a derivative is. Of neural networks, of C and of GPUs you need to know nothing.",
    "You want to know what happens inside: you write each step yourself, and see how fast it is, and why.",
    "You teach: the course hands itself out, collects, judges and marks.",
)
HOW = "How it goes"

# README's picture
FRONT_NETWORK = "30 inputs, two hidden layers, one output"
FRONT_COST = "cost on breast_cancer"
FRONT_TEST = "test data"

# The box on a notebook's page
TRY_IT = "Try it"
TRY_DOWNLOAD = "**Download** {link}, this notebook as you work in it: without the outputs that this page shows."
TRY_ONLINE = "**Run it there**, without an installation: {links}. What you write is lost when the session ends."
TRY_RUN = """\
**Run it** in the course, which brings the package that it imports: get a clone{address}, or the .zip of your lecturer,
and say `make lab` in its folder. That sets everything up, and opens your own copies of all notebooks in JupyterLab. No
GPU is needed."""
TRY_ELSEWHERE = "Not on Linux? The [front page]({front}) says what to type."
NO_SCRIPT = "Here stands a widget that you can move, where the browser allows JavaScript."

# What is folded away until you have made up your mind
PREDICT = "**Predict, then run.**"  # as the notebooks have it
SHOW_OUTPUT = "Predicted? Show what it says"
HIDE_OUTPUT = "Hide what it says"

# What scripts of the page say
ENLARGE = "Show this figure large"
CLOSE = "Close"
MOVE_SIDEWAYS = "Wider than the page: it scrolls sideways"

# The page for addresses that are none
NOT_FOUND = "No such page"
NOT_FOUND_WORDS = "This address leads to no page of the course. It begins here:"

# The reference
OPERATIONS_TITLE = "Operations and kernels"
REFERENCE_INTRODUCTION = """\
An *operation* is an equation with a contract: which arrays go in, and what comes out. A *kernel* is one way to compute
it, on one device. These pages are made from the package itself: every kernel that it holds, with its source.

In a notebook `print(dense_forward)` lists an operation's kernels, and `check(dense_forward, "tiled")` compares one with
the reference. Below each CUDA kernel stands the picture of its memory accesses on small arrays, as `picture.show` draws
it; blocks of a *naive* kernel are smaller there, so that the arrays fill some of them."""
SPOILERS = """\
Many of these kernels are answers to exercises. You learn more if you write yours first."""
OPERATION = "operation"
FORMULA = "what it computes"
OPERATIONS_OF_NETWORKS = "What networks compute"
OPERATIONS_OF_EXERCISES = "What only exercises compute"
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
COMPILED = "Numba compiles the same text."
CALLED = "The CUDA and C that these kernels launch"
AND = "and"
"""Between the last two names of a list."""
