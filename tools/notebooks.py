"""Run notebooks and save their outputs, without metadata that vary from run to run: tools/notebooks.py [FILE …]."""

import os
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
WIDGET = "application/vnd.jupyter.widget-view+json"


def main() -> None:
    """Run the notebooks as handed out: without solutions and without kept kernels."""
    os.environ.pop("NNCOURSE_SOLVE", None)
    os.environ["NNCOURSE_MY_KERNELS"] = str(Path(tempfile.gettempdir()) / "no_kernels_of_anybody")
    for path in map(Path, sys.argv[1:] or sorted(FOLDER.glob("*.ipynb"))):
        notebook = nbformat.read(path, as_version=4)
        client(notebook, path.parent, coalesce_streams=True).execute()
        normalise(notebook)
        nbformat.write(notebook, path)
        print(f"ran and saved {path.name}")


def client(notebook: nbformat.NotebookNode, folder: Path, **options) -> NotebookClient:
    """Return what runs a notebook in a folder; its kernel listens on files: a port could be taken by another kernel."""
    sockets = Path(tempfile.gettempdir()) / f"kernel-{uuid4().hex[:12]}"
    manager = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=str(sockets))
    resources = {"metadata": {"path": str(folder)}}
    return NotebookClient(notebook, km=manager, resources=resources, **{"timeout": 300} | options)


def normalise(notebook: nbformat.NotebookNode) -> None:
    """Remove time stamps, versions, references to widgets, stderr; keep sources, ids, tags and other outputs."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {"tags": cell.metadata["tags"]} if "tags" in cell.metadata else {}
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                output.get("data", {}).pop(WIDGET, None)  # no kernel has it any more: its text is shown instead


if __name__ == "__main__":
    main()
