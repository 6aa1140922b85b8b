"""A fused epoch: an epoch of training as one operation, by the kind of network and update."""
