"""How many devices learn together: groups of processes, strategies, and what they cost."""
