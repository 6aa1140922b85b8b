"""The Cantabria thesis's own numbers, from its tables and figures: two Tesla K20m, two Xeon E5-2620, PyTorch."""

# Tables 4.1 and 4.2, figures 4.4 and 4.6.
THESIS_COLUMNS = ("", "speedup", "of the loop", "efficiency", "energy J", "with idle", "EDP", "with idle", "accuracy")
THESIS = (
    ("CPU", "1/11.8", "–", "–", "8.48e6", "1.11e7", "86.65", "103.79", "80 %"),
    ("1 GPU", "1", "1", "1", "1.17e6", "1.28e6", "1", "1", "80 %"),
    ("1 GPU, DDP", "< 1", "–", "–", "1.18e6", "1.29e6", "1.02", "1.02", "80 %"),
    ("2 GPUs, 128 each", "1.79", "1.97", "0.895; loop 0.985", "1.15e6", "1.15e6", "0.56", "0.51", "74 %"),
    ("2 GPUs, 64 each", "–", "–", "–", "–", "–", "–", "–", "80 %"),
)
ACCURACY = {128: "80 %", 256: "74 % (2 GPUs, 128 each)"}  # by the batch of all devices
# Table 3.1: 784-192-10, MNIST, 8 epochs, batch 50, rate 0.5.
FRAMEWORKS = (
    ("TensorFlow, CPU", "95 %", "9.4 s"),
    ("TensorFlow, GPU", "96 %", "6.13 s"),
    ("PyTorch, CPU", "90 %", "14 s"),
    ("PyTorch, GPU", "90 %", "19.5 s"),
)
# Table 4.1, in the order in which page.settings() lists a plan's own settings.
SETTINGS = (
    ("images", "9,000 masks of fish"),
    ("classes", "9"),
    ("height × width", "148 × 197"),
    ("to train, validate, test", "7,650, 180, 1,170"),
    ("batch of one device", "128"),
    ("learning rate", "0.05"),
    ("optimizer", "SGD"),
    ("epochs", "100"),
    ("exchange", "NCCL"),
    ("runs", "10 timed, 3 for energy, 1 min apart"),
)
