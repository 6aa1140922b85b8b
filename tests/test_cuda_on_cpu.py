"""cuda_on_cpu alone: its README's example, its front door, and that it knows nothing of the course."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cuda_on_cpu
from cuda_on_cpu import CudaSource, UserError, launch, why_no_nvrtc, why_not
from cuda_on_cpu.host_compiler import MOST_FILE, compiled, cpp_compiler

FOLDER = Path(cuda_on_cpu.__file__).parent
ADD = CudaSource('extern "C" __global__ void add(float* a, int n) { a[0] += n; }', "a.cu")


@pytest.mark.skipif(bool(why_not()), reason=str(why_not()))
def test_the_readme_does_what_it_says(tmp_path):
    """In a process that can import nothing of the course."""
    _, example, _ = (FOLDER / "README.md").read_text("utf-8").replace("```python", "```").split("```")
    alone = "import sys; sys.modules.update(dict.fromkeys(('nncourse', 'nnclassroom')))\n"
    (tmp_path / "cuda_on_cpu").symlink_to(FOLDER)
    done = subprocess.run([sys.executable, "-c", alone + example], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *compiled, sums, kind, sentence = done.stdout.splitlines()
    assert sums == "[100. 100. 100.]" and kind == "race 7"
    assert sentence.startswith("row_sums.cu:7: row_sums: thread (1, 0, 0) and thread (0, 0, 0) ")
    assert "is a __syncthreads() missing?" in sentence
    assert len(compiled) == (why_no_nvrtc() is None)
    assert all(line.endswith(" registers a thread") for line in compiled)


def test_the_front_door_has_all_that_the_readme_names():
    text = (FOLDER / "README.md").read_text("utf-8")
    assert all(f"`{name}" in text or f"`{name}(" in text for name in cuda_on_cpu.PUBLIC)
    assert all(callable(getattr(cuda_on_cpu, name)) for name in cuda_on_cpu.__all__)
    with pytest.raises(AttributeError, match="no attribute 'lunch'"):
        cuda_on_cpu.lunch  # noqa: B018


def test_what_does_not_fit_a_kernel_is_refused():
    with pytest.raises(UserError, match=r"^a.cu: add: expected float32 for float\* a, got float64"):
        launch(ADD, "add", (1,), (8,), (np.zeros(8), 8))


def test_no_message_names_the_course():
    for file in FOLDER.glob("*.py"):
        tree = ast.parse(file.read_text("utf-8"))
        told = [node for node in ast.walk(tree) if isinstance(node, ast.Raise | ast.Return | ast.Dict)]
        words = " ".join(ast.unparse(node) for node in told)
        assert "course" not in words and "notebook" not in words, file.name


@pytest.mark.skipif(sys.platform != "linux" or why_not() is not None, reason="the limit is Linux's")
def test_a_compiler_writes_no_file_without_end(tmp_path):
    (tmp_path / "large.cpp").write_text(f"char large[{MOST_FILE + 1}] = {{1}};\n")
    assert compiled(cpp_compiler(), ["-c", "large.cpp"], tmp_path).returncode
    assert all(file.stat().st_size <= MOST_FILE for file in tmp_path.iterdir())


@pytest.mark.skipif(why_no_nvrtc() is not None, reason="no NVRTC")
def test_threads_that_load_nvrtc_at_the_same_time_find_it():
    code = """if True:
        import threading, time
        from cuda_on_cpu import why_no_nvrtc

        def ask(after):
            time.sleep(after)
            found.add(why_no_nvrtc())

        found = set()
        threads = [threading.Thread(target=ask, args=(0.02 * number,)) for number in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == {None}, found
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
