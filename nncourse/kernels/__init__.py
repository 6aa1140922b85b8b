"""What is computed: one file pair per topic, the contracts first, then their kernels, slow to fast."""
