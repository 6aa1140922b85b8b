"""JupyterLab in a Slurm job ends when nobody uses it, so that others get the GPU: read by way of JUPYTER_CONFIG_PATH.

First the idle kernels and terminals go, then the server. A kernel that computes is not idle, however long it takes.
"""

import os

idle = int(os.environ["IDLE_SECONDS"])
c = get_config()  # noqa: F821 - Jupyter puts it here
c.ServerApp.shutdown_no_activity_timeout = idle
c.MappingKernelManager.cull_idle_timeout = idle
c.MappingKernelManager.cull_connected = True  # a tab that was left open is no use
c.MappingKernelManager.cull_interval = min(idle, 60)
c.TerminalManager.cull_inactive_timeout = idle
c.TerminalManager.cull_interval = min(idle, 60)
