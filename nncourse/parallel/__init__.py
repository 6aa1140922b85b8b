"""How many devices learn together: groups of processes, how they are started, and the strategies."""
