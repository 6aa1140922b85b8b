"""A picture of a kernel: its counts agree with formulas, and the figure can be read."""

import base64
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from cuda_on_cpu.emulate import EmulationError, run
from cuda_on_cpu.program import why_no_compiler
from cuda_on_cpu.text import CudaSource
from cuda_on_cpu.trace import ATOMIC, READ, WRITE
from nnclassroom.exercises.catalogue import find
from nnclassroom.figures import picture
from nnclassroom.figures.accesses import accesses, table
from nncourse.cuda.launch import launch
from nncourse.errors import CourseError
from tools.notebooks import client

pytestmark = pytest.mark.skipif(why_no_compiler() is not None, reason=str(why_no_compiler()))

ROOT = Path(__file__).resolve().parent.parent
COPIES = CudaSource.read(Path(__file__).parent / "cuda" / "copies.cu")
SIGMOID_WITHOUT_GUARD = """
extern "C" __global__ void sigmoid(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    a[i] = 1.0f / (1.0f + expf(-z[i]));
}
"""


def counted(function: str, cells=128, threads=32, step=1, shared_bytes=0) -> picture.Accesses:
    """The accesses of one block that copies from x to y."""
    x, y, found = np.ones(cells, np.float32), np.zeros(cells, np.float32), []
    launch(COPIES, function, (1,), (threads,), [x, y, step], shared_bytes=shared_bytes, record=found)
    return picture.Accesses(function, found[0])


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


# ---- what is recorded


def test_each_access_names_cell_block_thread_kind_and_line():
    z, a = random(10), np.zeros(10, np.float32)
    kernel = find("sigmoid")["naive"]
    run(kernel.source, kernel.entry, (3, 1, 1), (4, 1, 1), [z, a, np.int32(10)], record=(traces := []))
    (found,) = traces
    rows = [
        (found.memories[number].name, *row)
        for number, *row in found.accesses[["memory", "cell", "block", "thread", "kind"]].tolist()
    ]
    wanted = [[("z", i, i // 4, i % 4, READ), ("a", i, i // 4, i % 4, WRITE)] for i in range(10)]
    assert rows == sum(wanted, [])
    (line,) = set(found.accesses["line"].tolist())
    assert "a[i] = 1.0f / (1.0f + expf(-z[i]))" in kernel.source.text.splitlines()[line - 1]
    assert np.allclose(a, 1 / (1 + np.exp(-z)))  # the launch computes as ever


def test_too_many_accesses_are_one_clear_error():
    kernel = find("sigmoid")["naive"]
    with pytest.raises(CourseError, match=r"sigmoid_naive: makes more than 19 accesses.*smaller sizes"):
        kernel(random(10), record=[], most_records=19)
    kernel(random(10), record=(found := []), most_records=20)
    assert len(found[0].accesses) == 20


def test_accesses_outside_are_recorded_and_do_no_harm():
    seen = counted("before_and_after", cells=6, threads=10, step=3)
    rows = seen.trace.accesses
    cells = {name: rows["cell"][rows["memory"] == place].tolist() for place, name in enumerate(("x", "y", "tile"))}
    assert cells == {"x": list(range(-2, 8)), "y": list(range(3, 13)), "tile": list(range(10))}
    assert [seen[name].outside for name in ("x", "y", "tile")] == [4, 7, 2]
    assert [seen["x"].reads, seen["y"].writes, seen["tile"].writes] == [6, 3, 8]


def test_an_access_far_away_is_the_emulators_error():
    with pytest.raises(EmulationError, match=r"copies\.cu:\d+: far_away"):
        counted("far_away")


def test_what_never_ends_is_ended():
    endless = CudaSource('extern "C" __global__ void endless(int n) { while (n) {} }', "tests/endless.cu")
    with pytest.raises(EmulationError, match="did not end within 0.3 s"):
        run(endless, "endless", (1, 1, 1), (1, 1, 1), [np.int32(1)], time_limit=0.3, record=[])


# ---- what is counted


@pytest.mark.parametrize(("batch", "n_in", "n_out"), [(8, 4, 40), (3, 7, 5)])
def test_dense_naive_reads_n_in_numbers_of_both_for_each_output(batch, n_in, n_out):
    seen = accesses(find("dense_forward")["naive"], random(batch, n_in), random(n_out, n_in), random(n_out))
    assert seen["A"].reads == seen["W"].reads == batch * n_in * n_out
    assert seen["b"].reads == seen["Z"].writes == batch * n_out
    assert not any(count.outside for count in seen.counts)
    assert seen["Z"].reads == seen["Z"].atomics == seen["A"].writes == 0


def test_tiles_read_global_memory_less_often_by_their_width():
    sizes = {"batch": 8, "n_in": 8, "n_out": 8, "block": (4, 4)}
    naive = picture.show("dense_forward", "naive", **sizes).accesses
    tiled = picture.show("dense_forward", "tiled", **sizes, TILE=4).accesses
    for name in "AW":
        assert naive[name].reads == 4 * tiled[name].reads == 8**3
        assert (tiled[f"{name}_tile"].writes, tiled[f"{name}_tile"].reads) == (tiled[name].reads, 8**3)
    assert tiled["A_tile"].memory.shape == (4, 4)
    assert tiled["W_tile"].memory.shape == (4, 5)  # TILE + 1
    assert tiled.fault is None


def test_a_warp_that_reads_down_a_column_touches_a_sector_for_each_thread():
    seen = accesses(find("dense_forward")["naive"], random(8, 32), random(32, 32), random(32))
    assert seen["W"].efficiency == 4 / 32
    assert "touches 32 sectors where 4 would do: 12 %" in seen["W"].worst
    assert [seen[name].efficiency for name in "AbZ"] == [1, 1, 1]


@pytest.mark.parametrize("n", [1, 31, 64, 1000])
def test_element_by_element_nothing_is_wasted(n):
    seen = accesses(find("relu")["naive"], random(n))
    assert [count.efficiency for count in seen.counts] == [1, 1]
    assert seen["z"].sectors == -(-n // 8)
    assert seen["z"].requests == -(-n // 32)


@pytest.mark.parametrize(
    ("function", "step", "sectors", "fewest"),
    [
        ("strided", 1, 4, 4),
        ("strided", 2, 8, 4),
        ("strided", 4, 16, 4),
        ("unaligned", 1, 5, 4),
        ("unaligned", 8, 4, 4),
        ("all_the_same", 9, 1, 1),
        ("four_at_once", 0, 16, 16),
    ],
)
def test_sectors_of_one_warp(function, step, sectors, fewest):
    count = counted(function, step=step)["x"]
    assert (count.requests, count.sectors, count.fewest, count.reads) == (1, sectors, fewest, 32)


# Worked out by hand for 4 turns. leaves_early: the odd lanes are a turn ahead of the even ones, until only even ones
# are left; 16 lanes write. calls: a request in each branch, then in each turn one for each of two calls.
@pytest.mark.parametrize(
    ("function", "requests", "sectors", "written"),
    [
        ("every_second_turn", 4, 16, 4),
        ("continues", 4, 4, 4),
        ("leaves_early", 4, 2 + 2 + 2 + 1, 2),
        ("calls", 2 + 2 * 4, 10, 4),
        ("nested", 2 * 4, 2 * 4, 4),
    ],
)
def test_lanes_that_diverge_are_counted_in_lockstep(function, requests, sectors, written):
    seen = counted(function, step=4)
    assert (seen["x"].requests, seen["x"].sectors) == (requests, sectors)
    assert (seen["y"].requests, seen["y"].sectors) == (1, written)


def test_lanes_may_spin_for_one_another():
    assert counted("spins")["y"].atomics >= 64


def test_reads_through_ldg_are_told_apart_by_their_place():
    count = counted("read_only_cache", step=3)["x"]
    assert (count.reads, count.requests, count.sectors) == (64, 2, 4 + 1)


def test_bank_conflicts_and_the_column_that_avoids_them():
    seen = counted("column_of_shared", shared_bytes=33 * 32 * 4)
    assert (seen["tile"].conflicts, seen["padded"].conflicts) == (32, 1)
    assert seen["tile"].reads == seen["padded"].reads == 32
    assert seen["tile"].writes == seen["padded"].writes == 32 * 32
    assert seen["tile"].memory.shape == (32, 32)


@pytest.mark.parametrize("threads", [8, 64])
def test_a_tree_reads_and_writes_shared_memory_as_often_as_it_has_branches(threads):
    partial = picture.show("mse", "tree", block=threads, batch=3, n=5).accesses["partial"]
    assert partial.writes == threads + threads - 1  # its own number, then a sum for each branch
    assert partial.reads == 2 * (threads - 1) + threads  # two for each branch, and all read the result
    assert partial.conflicts == 1


def test_atomics_are_counted_apart():
    seen = picture.show("mse", "atomic", block=8, batch=3, n=5).accesses
    assert (seen["C"].atomics, seen["C"].reads, seen["C"].writes) == (15, 0, 0)
    assert (seen.trace.accesses["kind"] == ATOMIC).sum() == 15
    assert seen.idle == 16 - 15


def test_a_missing_guard_shows_in_table_and_figure():
    seen = picture.show("sigmoid", SIGMOID_WITHOUT_GUARD, n=10, block=4)
    assert [(count.reads, count.writes, count.outside) for count in seen.accesses.counts] == [(10, 0, 2), (0, 10, 2)]
    assert "✗ outside: a[10] of 10 cells, thread 2 of block 2, line 4: is there a guard?" in str(seen)
    assert seen.accesses.fault is None
    assert [text.get_text() for axes in seen.figure.axes for text in axes.texts].count("outside") == 2
    title = "sigmoid (text): n 10"  # not taken for the student's own
    assert seen.accesses.title == title and seen.figure.words.startswith(f"{title}. ")
    right = picture.show("sigmoid", "naive", n=10, block=4)
    assert right.accesses.idle == 2
    assert "outside" not in [text.get_text() for axes in right.figure.axes for text in axes.texts]


def test_of_two_with_one_name_the_first_is_meant():
    text = """extern "C" __global__ void sigmoid(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    auto half = [](float x) { __shared__ float z[512]; z[threadIdx.x] = x; return z[threadIdx.x] / 2; };
    if (i < n) a[i] = 0.5f * tanhf(half(z[i])) + 0.5f;
}"""
    counts = picture.show("sigmoid", text, n=10).accesses
    assert [count.memory.name for count in counts.counts].count("z") == 2
    assert counts["z"].memory.shape == (10,)


def test_arguments_are_left_as_they_were():
    W, G = random(6), random(6)
    before = W.copy()
    seen = accesses(find("sgd_update")["naive"], W, G, 0.5)
    assert (before == W).all()
    assert seen.fault is None
    assert (seen["W"].reads, seen["W"].writes) == (6, 6)


# ---- what is shown

IMAGE = {"batch": 1, "c_in": 1, "h_in": 8, "w_in": 8, "c_out": 1, "k": 3, "stride": 1, "before": 1, "after": 1}
HALO = IMAGE | {"block": (4, 4), "grid": (1, 2, 2), "TILE": 4, "SIDE": 6}
SHOWN = [
    ("sigmoid", "naive", {"n": 10, "block": 4}),
    ("sigmoid", "naive", {"n": 100}),
    ("sigmoid", SIGMOID_WITHOUT_GUARD, {"n": 40, "block": 32}),
    ("dense_forward", "naive", {"batch": 5, "block": (4, 4)}),
    ("dense_forward", "tiled", {"batch": 8, "n_in": 8, "n_out": 8, "block": (4, 4), "TILE": 4}),
    ("convolution_forward", "naive", {"batch": 1, "before": 0, "block": 32}),
    ("convolution_forward", "shared", HALO),
    ("maxpool_backward", "naive", {"batch": 1, "c": 1, "h_in": 4, "w_in": 4, "size": 2, "stride": 2, "padding": 0}),
    ("mse", "tree", {"block": 8}),
    ("mse", "shuffle", {"block": 64}),
    ("softmax", "tree", {"block": 8, "THREADS": 8, "n": 12}),
    ("confusion_matrix", None, {"n": 20}),
    ("categorical_cross_entropy", None, {"batch": 70, "n": 3}),
]


CONVOLUTION = IMAGE | {"c_in": 2, "h_in": 5, "w_in": 5, "c_out": 4}


@pytest.mark.parametrize(("operation", "kernel", "sizes"), SHOWN)
def test_table_and_figure_can_be_read(operation, kernel, sizes):
    kernel = kernel or next(name for name, there in find(operation).kernels.items() if hasattr(there, "source"))
    seen = picture.show(operation, kernel, **sizes)
    text = table(seen.accesses)
    assert max(map(len, text.splitlines())) <= 80
    assert not [line for line in text.splitlines() if re.match(r"\d+(,|$)", line)]  # a size without its name
    for memory in seen.accesses.trace.memories:
        assert memory.name in text
        assert f">{memory.name}</td>" in seen.accesses._repr_html_()
    for figure in (seen.figure, seen.plot(block=0)):
        width, height = figure.get_size_inches()
        assert width <= 7 and height <= 10
        assert figure.texts[0].get_text().startswith(operation)
        assert figure.texts[0].get_window_extent(FigureCanvasAgg(figure).get_renderer()).x1 < 100 * width
        assert figure.get_facecolor() == (1, 1, 1, 1)
        assert len(figure.axes) > len(seen.accesses.trace.memories)  # one for the threads, too
        for axes in figure.axes:
            assert axes.get_title(loc="left") and axes.get_xlabel()
            assert axes.get_ylabel() or len(axes.get_yticks()) == 0
            frame = axes.get_position()
            assert min(frame.x0, frame.y0) > 0 and max(frame.x1, frame.y1) < 1
        legend = [entry.get_text() for entry in figure.legends[0].get_texts()]
        kinds = set(seen.accesses.trace.accesses["kind"].tolist())
        assert ("faint: read" in legend) == (READ in kinds) and "framed: written" in legend
        assert ("outside the array" in legend) == any(
            text.get_text() == "outside" for axes in figure.axes for text in axes.texts
        )


def test_arrays_are_drawn_as_data_pass_through_them():
    seen = picture.show("dense_forward", "tiled", batch=8, n_in=8, n_out=8, block=(4, 4), TILE=4)
    titles = [axes.get_title(loc="left").partition(" ")[0] for axes in seen.figure.axes]
    assert titles == ["threads", "A", "W", "b", "A_tile", "A_tile", "W_tile", "W_tile", "Z"]
    tiles = [axes.get_title(loc="left") for axes in seen.figure.axes if "A_tile" in axes.get_title(loc="left")]
    assert "written" in tiles[0] and "read" in tiles[1]


def test_reads_are_counted_for_each_element():
    """A pixel is read once for each window that holds it."""
    reads = picture.show("convolution_forward", "naive", **CONVOLUTION).accesses.reads_of("A")
    of_a_row = np.array([2, 3, 3, 3, 2])
    assert reads.shape == (1, 2, 5, 5) and (reads == 4 * np.outer(of_a_row, of_a_row)).all()


def test_a_tile_of_a_convolution_has_a_halo():
    seen = picture.show("convolution_forward", "shared", **HALO)
    title = "convolution_forward (shared): " + ", ".join(f"{name} {size}" for name, size in IMAGE.items())
    assert title in " ".join(str(seen).split())
    trace = seen.accesses.trace
    number = next(number for number, memory in enumerate(trace.memories) if memory.name == "A")
    here = trace.accesses[(trace.accesses["memory"] == number) & (trace.accesses["block"] == 0)]
    rows, columns = here["cell"] // 8, here["cell"] % 8
    assert len(here) == 25, "of 6 x 6 pixels one row and one column are outside"
    assert (rows.max(), columns.max()) == (4, 4), "a row and a column more than the tile of 4 x 4"
    assert seen.accesses["piece"].reads == 64 * 9 and seen.accesses["piece"].memory.shape == (6, 6)


def test_the_figure_of_one_block_numbers_its_threads():
    seen = picture.show("dense_forward", "naive", batch=4, n_in=3, n_out=8, block=(4, 4))
    Z = seen.plot(block=1).axes[-1]
    assert Z.get_title(loc="left") == "Z (4, 8): written"
    numbers = {text.get_position(): text.get_text() for text in Z.texts if text.get_text().isdigit()}
    assert numbers == {(4 + x + 0.5, y + 0.5): str(4 * y + x) for x in range(4) for y in range(4)}
    with pytest.raises(CourseError, match="expected a block from 0 to 1, got 2"):
        seen.plot(block=2)


def test_a_notebook_gets_figure_and_table(monkeypatch):
    import IPython.display

    shown = []
    monkeypatch.setattr(IPython.display, "display", lambda *things: shown.extend(things))
    picture.show("sigmoid", "naive", n=4, block=4)._ipython_display_()
    image, accesses_ = shown
    bundle, _ = image._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert "1 block of 4 threads; all 4 threads touch cells. z: 4 reads; a: 4 writes." in bundle["text/plain"]
    assert "<table>" in accesses_._repr_html_()


@pytest.mark.parametrize(
    ("arguments", "sizes", "says"),
    [
        (("sigmoid", "numpy"), {}, "expected a CUDA kernel, one of naive"),
        (("sigmoid", "fast"), {}, "one of its kernels"),
        (("sigmoidd", "naive"), {}, "did you mean sigmoid"),
        (("dense_sgd_epoch", "__global__ void of_mine() {}"), {}, "sgd_epoch: expected an operation with CUDA kernels"),
        (("sigmoid", "naive"), {"n": 0}, "sigmoid: expected sizes from 1 up, got n=0"),
        (("sigmoid", "naive"), {"m": 3}, r"expected a size \(n\) or a constant that the text defines; got m"),
        (("dense_forward", "tiled"), {"block": (2, 2, 2)}, "a block with 1 axis or 2"),
        (("dense_forward", "tiled"), {"batch": 300, "n_in": 300, "n_out": 30}, "use smaller sizes"),
    ],
)
def test_mistakes_are_one_line(arguments, sizes, says):
    with pytest.raises(CourseError, match=says) as caught:
        picture.show(*arguments, **sizes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("a[0] = z[0]", 'error: expected a ";"'),
        ("if (threadIdx.x) __syncthreads();", "reached by 3 of 4 threads"),
        ("while (a[0] == a[0] || n) a[0] = 1;", "too many to record"),
        ("double value = z[0];", "expected float64 for const double* z"),
    ],
)
def test_where_a_wrong_attempt_does_not_run_the_courses_is_shown_and_one_line_says_so(body, says, capsys):
    number = "double" if "double" in body else "float"
    text = f'extern "C" __global__ void relu_naive(const {number}* z, {number}* a, int n) {{ {body} }}'
    kernel = find("relu")["naive"]
    attempt = replace(kernel, source=CudaSource(text, "relu.cu"), whose="yours, wrong")
    assert str(picture.show("relu", attempt, n=10, block=4)) == str(picture.show("relu", "naive", n=10, block=4))
    said = capsys.readouterr().out
    assert said.startswith("Your relu (naive) cannot be shown, so here is the course's: ") and says in said
    assert said.count("\n") == 1
    with pytest.raises(CourseError):
        picture.show("relu", replace(attempt, whose=""), n=10, block=4)


CELLS = {  # how many figures each shows, and how many words it prints
    "show()\nshow()": (2, 0),
    "for block in (2, 4):\n    show(block=block)": (2, 0),
    "def both():\n    show()\n    show()\nboth()": (2, 0),
    "if True:\n    show()\nshow();": (1, 0),
    "seen = show()\nprint(seen)": (0, 1),
    "print(show())\nshow().plot(block=0);": (0, 1),
    "seen = [show() for _ in range(2)]\nseen[0]": (1, 0),
}


@pytest.mark.full
def test_a_live_notebook_shows_each_picture_once(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    texts = [text.replace("show(", 'picture.show("sigmoid", "naive", n=4, ').replace(", )", ")") for text in CELLS]
    setup = "from nnclassroom import picture"
    cells = [nbformat.v4.new_code_cell(text) for text in (setup, *texts)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client(notebook, tmp_path, timeout=120).execute()
    for cell, (figures, prints) in zip(notebook.cells[1:], CELLS.values(), strict=True):
        kinds = [output.output_type for output in cell.outputs]
        shown = [output for output in cell.outputs if "image/png" in output.get("data", {})]
        assert (len(shown), kinds.count("stream")) == (figures, prints), cell.source


def test_outside_a_notebook_nothing_is_displayed(monkeypatch):
    monkeypatch.setattr(picture.Picture, "_ipython_display_", lambda self: pytest.fail("displayed"))
    picture.show("sigmoid", "naive", n=4, block=4)


@pytest.mark.parametrize("tile", [8, 32])
def test_notebook_03b_draws_a_tiled_kernel_with_its_own_block(tile, capsys):
    cells = json.loads((ROOT / "notebooks" / "03b_dense_on_the_gpu.ipynb").read_text(encoding="utf-8"))["cells"]
    (text,) = ("".join(cell["source"]) for cell in cells if cell["id"] == "yours-count")
    kernel = find("dense_forward")["tiled"]
    source = replace(kernel.source, text=kernel.source.text.replace("#define TILE 16", f"#define TILE {tile}"))
    yours = replace(kernel, source=source, block=(tile, tile), plans={})
    exec(text, {"picture": picture, "dense_forward_tiled": SimpleNamespace(attempt=yours)})
    said = capsys.readouterr().out
    assert f"{tile} × {tile} threads" in said
    assert "✗" not in said


def test_a_long_remark_goes_on_in_another_line():
    """It is not cut off, even in languages with longer words."""
    seen = picture.show("add_bias", "naive", batch=5, n=6)
    fault = "the first of them is 0.1234567, expected is -0.05469847 ± 5e-07, the last is here"
    lines = table(replace(seen.accesses, fault=fault)).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("✗"))
    assert lines[first + 1].startswith("  ") and max(map(len, lines)) <= 80
    assert " ".join(f"{lines[first]} {lines[first + 1].strip()}".split()) == f"✗ the result is wrong: {fault}"


def test_a_plain_picture_has_no_sectors_but_names_what_is_outside():
    plain = picture.show("sigmoid", SIGMOID_WITHOUT_GUARD, n=10, block=4, plain=True)
    assert "outside: z[10]" in str(plain) and "sectors" not in str(plain)
    labels = [text.get_text() for text in plain.figure.legends[0].get_texts()]
    assert "outside the array" in labels and "what one warp asks for at once" not in labels
