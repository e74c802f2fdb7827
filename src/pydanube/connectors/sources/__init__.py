"""The sources."""
