"""What a student hands in: packing it, reading it without trusting it, taking it to another machine."""
