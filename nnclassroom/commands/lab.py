"""`nncourse lab`: JupyterLab at a student's own copy of the notebooks."""

from argparse import ArgumentParser, Namespace
from pathlib import Path


def add_options(parser: ArgumentParser) -> None:
    words = "folder of your copy (default: the folder used before, or my_notebooks in the course's or home folder)"
    parser.add_argument("folder", type=Path, nargs="?", help=words)
    port = "port of JupyterLab (default: JUPYTER_PORT, or the first free one from 8888 on)"
    parser.add_argument("--port", default="", help=port)


def run(options: Namespace) -> int:
    from nnclassroom.handing_out import lab

    lab.start(options.folder, options.port)
    return 0
