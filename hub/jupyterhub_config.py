"""Configures a JupyterHub that serves the course on one machine; docs/jupyterhub.md explains how to set it up.

Users are the accounts of the machine, and each server runs as its user. Everything listens on localhost only, so put a
web server with a certificate in front of the Hub.
"""

import os
import sys
from pathlib import Path

course = Path(os.environ.get("NNCOURSE_COURSE") or Path(__file__).resolve().parent.parent)
programs = Path(sys.prefix) / "bin"
idle = 3600  # seconds

c = get_config()  # noqa: F821 - JupyterHub puts it here
c.JupyterHub.bind_url = "http://127.0.0.1:8000"
c.JupyterHub.hub_ip = "127.0.0.1"
c.ConfigurableHTTPProxy.command = str(programs / "configurable-http-proxy")
c.Authenticator.allow_all = True  # for one group alone: c.LocalAuthenticator.allowed_groups = {"students"}

c.Spawner.ip = "127.0.0.1"
c.Spawner.cmd = [str(course / "hub" / "singleuser.sh"), str(programs / "jupyterhub-singleuser")]
c.Spawner.default_url = "/lab/tree/nn-course/notebooks/00_start_here.ipynb"
c.Spawner.environment = {
    "JUPYTER_PATH": str(course / ".venv" / "share" / "jupyter"),  # the course's kernel comes first
    "OPENBLAS_THREAD_TIMEOUT": "22",  # BLAS's threads leave their cores to others 2 ms after a product: see threads.py
}
for name in ("NNCOURSE_HANDOUT", "NNCOURSE_LANG"):
    if name in os.environ:
        c.Spawner.environment[name] = os.environ[name]
c.Spawner.args = [
    "--KernelManager.transport=ipc",  # through files of the user, since other users can listen to ports
    f"--LabApp.app_settings_dir={course / '.venv' / 'share' / 'jupyter' / 'lab' / 'settings'}",  # no news, no updates
    *(f"--ContentsManager.hide_globs={name}" for name in ("__pycache__", "*.pyc", "*~", "MANIFEST.json")),
    f"--MappingKernelManager.cull_idle_timeout={idle}",
    f"--ServerApp.shutdown_no_activity_timeout={2 * idle}",
]
