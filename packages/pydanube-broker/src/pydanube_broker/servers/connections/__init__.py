"""Connections of clients: who they are, and what they may use."""
