"""How several processes are started and looked after."""
