"""Widgets that the browser draws: each a .py file beside its .js file."""
