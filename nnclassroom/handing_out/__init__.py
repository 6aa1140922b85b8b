"""What students get, and how changes reach them."""
