# make lab     sets the course up in .venv and opens JupyterLab at your copy of the notebooks, my_notebooks/
# make test    sets the course up with the tests' packages, and runs the tests that every commit must pass, within ten minutes
#              (FILES="tests/test_dense.py" runs only some files, ARGS="-k dense" only some tests; both work for test-full too)
# make test-full     runs all tests that install nothing, within the hour
# make test-release  runs the tests that only a release must pass
# make test-gpu      runs on a GPU everything that a GPU changes, within 8 minutes on 16 cores, and prints a table: run it before
#                    you close an issue about GPUs. What has passed is not run again, unless ANEW=1. PART=1/2 runs half
# make book    sets the course up and makes the web book, build/book/html (ARGS="--address URL" sets the repository's address)
# make setup   sets up what make test needs, without running the tests
# make shared  sets the course up for all users of a machine (docs/jupyterhub.md)
# make notebooks  runs the notebooks and saves their outputs
# make claims  checks what the notebooks claim, over five seeds where chance plays a part, within the hour: tools/claims.py
# make sizes   prints the number of lines of each part of the code, and its limit, which is in pyproject.toml
# make locks   writes requirements/*.txt anew from pyproject.toml, with uv
#
# PYTHON=python3.12 sets the interpreter, CUDA=12 (or 13, none) the version of CUDA, JUPYTER_PORT=8899 JupyterLab's port.

PYTHON ?= python3
ARGS ?=
FILES ?=

# Keep out the packages and the Jupyter kernels of other installations.
unexport PYTHONPATH PYTHONHOME
export JUPYTER_PATH := $(CURDIR)/.venv/share/jupyter

.PHONY: lab test test-full test-release test-gpu style book setup shared notebooks claims locks sizes python

lab: python
	@$(PYTHON) tools/setup.py
	@.venv/bin/python -m nnclassroom lab

# tests/tiers.py says which tests belong to quick, full and release; conftest.py says which process runs them, and in
# which order.
# Asserts are not rewritten, because in a fresh clone each process would rewrite those of all test files, which takes more than
# a minute. In files that you name they are: if a test fails, run its file with FILES to see the values.
PYTEST = .venv/bin/python -m pytest --numprocesses auto --dist loadscope --no-loadscope-reorder $(if $(FILES),,--assert=plain)
NBVAL = --nbval-lax --nbval-cell-timeout 300
CHOSEN = $(or $(FILES),tests notebooks)
NOTEBOOKS = $(filter notebooks% %.ipynb,$(CHOSEN))
# The notebooks run as handed out, and with all exercises solved (notebook 00 has none). test runs most of them in only one
# of the two ways, which the commit's hash picks. test-full also runs them with every second exercise solved, and with the
# others solved. Exit status 5 means that ARGS chose none of them.
SOLVED = NNCOURSE_STRICT=1 $(PYTEST) --tier $(TIER) $(NOTEBOOKS) --ignore notebooks/00_start_here.ipynb $(NBVAL) $(ARGS) || [ $$? -eq 5 ]
EVERY_SECOND = $$(.venv/bin/python -m nnclassroom.exercises.hints)
THE_OTHERS = $$(.venv/bin/python -m nnclassroom.exercises.hints 1)

test test-full test-release: export NNCOURSE_MY_KERNELS = $(CURDIR)/build/no_kernels
test test-full test-release: export OMP_NUM_THREADS = 1
# Hundreds of processes start. Without bytecode, each would compile the package and the tests anew.
test test-full test-release: export PYTHONDONTWRITEBYTECODE =

test: TIER = quick
test: setup style
	$(PYTEST) --tier $(TIER) $(CHOSEN) $(NBVAL) $(ARGS)
	$(if $(NOTEBOOKS),NNCOURSE_SOLVE=all $(SOLVED))

test-full: TIER = full
test-full: setup style
	$(PYTEST) --tier $(TIER) $(CHOSEN) $(NBVAL) $(ARGS)
	$(if $(NOTEBOOKS),NNCOURSE_SOLVE=all $(SOLVED))
	$(if $(NOTEBOOKS),solve=$(EVERY_SECOND) && NNCOURSE_SOLVE=$$solve $(SOLVED))
	$(if $(NOTEBOOKS),solve=$(THE_OTHERS) && NNCOURSE_SOLVE=$$solve $(SOLVED))

test-release: setup
	rm -rf build/no_kernels
	$(PYTEST) --tier release $(or $(FILES),tests) $(ARGS)

# Where nothing can be installed, run python3 tools/test_gpu.py with a Python that has the packages.
test-gpu: setup
	@.venv/bin/python tools/test_gpu.py $(if $(PART),--part $(PART)) $(if $(ANEW),--anew)

style: setup
	.venv/bin/python -m ruff check nncourse fused_epochs nnclassroom nnmarking nnexperiment cuda_on_cpu tests tools claims book benchmarks pytorch slurm hub notebooks conftest.py
	.venv/bin/python -m ruff format --check --quiet nncourse fused_epochs nnclassroom nnmarking nnexperiment cuda_on_cpu tests tools claims book benchmarks pytorch slurm hub notebooks conftest.py
	.venv/bin/python -m mypy
	rm -rf build/no_kernels

book: python
	@$(PYTHON) tools/setup.py book
	@.venv/bin/python tools/book.py $(ARGS)

setup: python
	@$(PYTHON) tools/setup.py test

shared: python
	@$(PYTHON) tools/setup.py shared

notebooks: setup
	@.venv/bin/python tools/notebooks.py

locks: setup
	@.venv/bin/python tools/lock.py

claims: setup
	.venv/bin/python tools/claims.py

sizes: python
	@$(PYTHON) tools/sizes.py

python:
	@command -v $(PYTHON) >/dev/null || { \
		echo "set-up: no $(PYTHON) here: install Python 3.11 or newer (Debian, Ubuntu: apt install python3 python3-venv)" >&2; exit 1; }
