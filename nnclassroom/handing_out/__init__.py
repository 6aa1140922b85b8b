"""A student's copy of the course: making it, bringing changes to it, and opening it in JupyterLab."""
