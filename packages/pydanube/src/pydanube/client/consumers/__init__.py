"""Consumers, readers and dead letters."""
