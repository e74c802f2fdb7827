"""Functions that process messages, and output that is committed once."""
