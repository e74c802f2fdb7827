"""The journal: how it is written, copied and recovered."""
