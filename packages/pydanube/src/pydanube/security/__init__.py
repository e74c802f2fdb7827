"""Identities of clients, as pure values and functions."""
