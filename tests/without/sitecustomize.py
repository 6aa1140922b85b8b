"""Takes away what NNCOURSE_WITHOUT names, "fork" or "nvrtc". A Python with this folder on its path runs it at start."""

import multiprocessing
import os
import sys

without = os.environ.get("NNCOURSE_WITHOUT", "").split(",")
if "fork" in without:
    del os.fork, os.forkpty
    multiprocessing.set_start_method("spawn")  # as it is where nothing can fork
if "nvrtc" in without:
    sys.modules["cuda"] = None  # importing it is then a ModuleNotFoundError
