# make lab     sets the course up in .venv and opens JupyterLab at your copy of the notebooks, my_notebooks/
# make test    sets the course up, the tests' packages included, and runs what judges a commit within ten minutes
#              (FILES="tests/test_dense.py" runs some files, ARGS="-k dense" some tests; these two for test-full too)
# make test-full     runs all tests that need no installation, within the hour
# make test-release  runs what only a release must pass
# make test-gpu      runs on a GPU whatever a GPU changes, within 8 minutes on 16 cores, and prints a table of it: before closing
#                    an issue that changes what a GPU sees. PART=1/2 runs half; what has passed is not run again (ANEW=1 runs it)
# make book    sets the course up, and makes the web book: build/book/html (ARGS="--address URL" names the repository's address)
# make setup   what make test needs, without running it
# make shared  sets the course up for all users of a machine (docs/jupyterhub.md)
# make notebooks  runs the notebooks and saves their outputs
# make claims  tries what the notebooks claim, over five seeds where chance plays a part, within the hour: tools/claims.py
# make sizes   prints the lines of each room beside their limits, which pyproject.toml holds
# make locks   writes requirements/*.txt anew from pyproject.toml, with uv
#
# PYTHON=python3.12 chooses the interpreter, CUDA=12, 13 or none what is otherwise detected, JUPYTER_PORT=8899 the port.

PYTHON ?= python3
ARGS ?=
FILES ?=

# Nothing of another installation may leak in: neither its packages nor its Jupyter kernels.
unexport PYTHONPATH PYTHONHOME
export JUPYTER_PATH := $(CURDIR)/.venv/share/jupyter

.PHONY: lab test test-full test-release test-gpu style book setup shared notebooks claims locks sizes python

lab: python
	@$(PYTHON) tools/setup.py
	@.venv/bin/python -m nnclassroom lab

# Which tests belong to quick, full and release is said in tests/tiers.py; what goes into which process, and in which
# order, in conftest.py.
# In a fresh clone each process would rewrite the asserts of all test files, which takes longer than a minute. Those of the
# files that you name are rewritten: run the files of a test that has failed to see its values.
PYTEST = .venv/bin/python -m pytest --numprocesses auto --dist loadscope --no-loadscope-reorder $(if $(FILES),,--assert=plain)
NBVAL = --nbval-lax --nbval-cell-timeout 300
CHOSEN = $(or $(FILES),tests notebooks)
NOTEBOOKS = $(filter notebooks% %.ipynb,$(CHOSEN))
# The notebooks run as handed out, and with all exercises solved, of which the first has none; with each commit half of
# them in one of the two ways. In full also with every second one solved, and with the others. Exit status 5: ARGS chose
# none of them.
SOLVED = NNCOURSE_STRICT=1 $(PYTEST) --tier $(TIER) $(NOTEBOOKS) --ignore notebooks/00_start_here.ipynb $(NBVAL) $(ARGS) || [ $$? -eq 5 ]
EVERY_SECOND = $$(.venv/bin/python -m nnclassroom.exercises.hints)
THE_OTHERS = $$(.venv/bin/python -m nnclassroom.exercises.hints 1)

test test-full test-release: export NNCOURSE_MY_KERNELS = $(CURDIR)/build/no_kernels
test test-full test-release: export OMP_NUM_THREADS = 1
# Hundreds of processes start, which otherwise would all compile the package and the tests anew.
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

# On a machine where nothing can be installed: python3 tools/test_gpu.py, with a Python that has the packages.
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
