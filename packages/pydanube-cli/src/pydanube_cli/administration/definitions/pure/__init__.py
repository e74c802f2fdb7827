"""Definitions as a document."""
