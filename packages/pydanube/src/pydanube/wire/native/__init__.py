"""The native protocol as bytes and messages."""
