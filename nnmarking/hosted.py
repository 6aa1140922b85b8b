"""`nncourse handout --hosted`: write notebooks for a hosted Jupyter, such as Google Colab, to upload one by one.

Each notebook begins with a cell that installs the course's wheel if it is missing; on_host.py does the rest there.

python -m nnmarking.hosted        prints this module's texts, for a hand-out in a different language
"""

import sys
from pathlib import Path
from urllib.parse import urlsplit

from nnclassroom.handing_out.notebook_files import clean, notebooks, packed, parsed, to_bytes
from nnclassroom.zips import refuse_other_name, write_zip
from nncourse import language as languages
from nncourse.errors import CourseError, reason_of
from nnmarking.handout import TOP
from nnmarking.readme import PARTED, in_language

SETUP = """# Set-up for a hosted Jupyter: run this cell first, and again after each restart.
import os, subprocess, sys
from importlib.util import find_spec
from pathlib import Path

os.environ["NNCOURSE_LANG"] = "{language}"
wheel = "{wheel}"
if not find_spec("nncourse"):
    places = [Path(wheel), Path("/content/drive/MyDrive", wheel)]
    found = wheel if "://" in wheel else next((str(path) for path in places if path.is_file()), "")
    if not found:
        raise SystemExit(f"{{wheel}} is not beside this notebook: upload that file too, and run this cell again")
    print("Installing the course, which takes about a minute", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, found], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit("The course cannot be installed: " + done.stderr[-1000:])

from nnclassroom.handing_out import on_host

on_host.set_up()"""
README = """# Neural networks, in a hosted Jupyter

1. Upload a notebook from `notebooks/` to the hosted Jupyter. {wheel}
2. Run the first code cell, which installs the course. Run it again after each restart.
3. Fill in the exercises. A notebook with `%%cuda` cells asks Google Colab for a GPU. Without a GPU your kernels run on
   the CPU.

The host deletes your kernels when the session ends. To keep them in Google Colab, mount your drive (Files, Mount Drive)
before step 2. On any host you can download `my_kernels/`. Also download your notebooks: you hand them in.
"""
UPLOADED, FETCHED = "Upload `{wheel}` to the same folder.", "The notebook downloads the course from <{wheel}>."
TEXTS = SETUP, README, UPLOADED, FETCHED


def write(out: Path, wheel: str, language: str = languages.ENGLISH) -> str:
    """Write the .zip. Returns a line that says what is in it.

    wheel: the course's wheel. Notebooks download it if it is an address. If it is a file, it goes into the .zip, and
        students upload it with their notebook.

    Raises CourseError if this is not a clone of the course, or if there is no such wheel.
    """
    refuse_other_name(out)
    files, name = _wheel(wheel)
    fetched = "://" in name
    cell, about, *ways = in_language(language, __name__, PARTED.join(TEXTS)).split(PARTED)
    cell = cell.format(language=language, wheel=name)
    files["README.md"] = about.format(wheel=ways[fetched].format(wheel=name)).encode()
    for path in notebooks(languages.ROOT, language):
        files[f"notebooks/{path.name}"] = with_setup(clean(path.read_bytes(), path.name), path.name, cell)
    write_zip(out, packed(files, TOP, {"kind": "hosted", "language": language}))
    where = "which the notebooks download" if fetched else "which students upload with a notebook"
    return f"{out}: notebooks for a hosted Jupyter, {len(files)} files; the course is {name}, {where}"


def _wheel(wheel: str) -> tuple[dict[str, bytes], str]:
    """The files that the .zip has besides the notebooks, and the wheel's address or name for the set-up cell."""
    wanted = f"{wheel}: expected the course's wheel, an address or a file named nncourse-….whl"
    name = Path(urlsplit(wheel).path).name if "://" in wheel else Path(wheel).name
    if not (name.startswith("nncourse-") and name.endswith(".whl")):
        raise CourseError(wanted)
    if "://" in wheel:
        return {}, wheel
    try:
        return {f"notebooks/{name}": Path(wheel).read_bytes()}, name
    except OSError as error:
        raise CourseError(f"{wanted}: {reason_of(error)}; run pip wheel --no-deps . to make one") from None


def with_setup(content: bytes, name: str, cell: str) -> bytes:
    """The notebook with the set-up cell below its title. A notebook with CUDA kernels asks Google Colab for a GPU."""
    from nbformat import v4

    notebook = parsed(content, name)
    if any(cell.source.startswith("%%cuda") for cell in notebook.cells):
        notebook.metadata["accelerator"] = "GPU"
    notebook.cells.insert(1, v4.new_code_cell(cell, id="hosted-setup"))
    return to_bytes(notebook)


if __name__ == "__main__":
    sys.stdout.write(PARTED.join(TEXTS))
