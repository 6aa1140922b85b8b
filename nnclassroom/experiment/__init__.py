"""The thesis's experiment: one run, several runs, what they show, and their page."""
