"""Whether a kernel is right: cases, comparison with the reference, verdicts, and the process of an answer."""
