"""Shuts down an unused JupyterLab in a Slurm job, to free the GPU for others. JUPYTER_CONFIG_PATH leads Jupyter here.

Idle Jupyter kernels and terminals are shut down first, then the server. A kernel that is computing is never idle.
"""

import os

idle = int(os.environ["IDLE_SECONDS"])
c = get_config()  # noqa: F821 - Jupyter puts it here
c.ServerApp.shutdown_no_activity_timeout = idle
c.MappingKernelManager.cull_idle_timeout = idle
c.MappingKernelManager.cull_connected = True  # even if a browser tab is open
c.MappingKernelManager.cull_interval = min(idle, 60)
c.TerminalManager.cull_inactive_timeout = idle
c.TerminalManager.cull_interval = min(idle, 60)
