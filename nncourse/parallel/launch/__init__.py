"""Start several processes, and watch them."""
