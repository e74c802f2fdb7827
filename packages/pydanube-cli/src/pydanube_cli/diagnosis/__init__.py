"""Checks of a broker and a machine, and what they find."""
