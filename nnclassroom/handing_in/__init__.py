"""A student's hand-in: packing it, reading it without trusting it, taking it to another machine."""
