"""What learns: layers, networks, training, metrics, model files."""
