"""The student's loop in a notebook: fill in, check, time, carry over."""
