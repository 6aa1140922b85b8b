"""Starting several processes and watching them."""
