"""Pure modules: no loop, thread, clock, randomness or network."""
