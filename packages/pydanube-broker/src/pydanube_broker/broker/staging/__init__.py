"""Output that is staged in parts, and committed once."""
