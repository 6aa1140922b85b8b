"""What runs in the process of an answer. Of all this the judge itself uses messages.py and results.py only."""
