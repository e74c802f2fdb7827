"""Decisions of the HTTP interfaces.  Pure."""
