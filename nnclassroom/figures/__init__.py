"""What notebooks draw: one file for each notebook, nb01 to nb14, and what they share."""
