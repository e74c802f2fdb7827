"""The server of the native protocol."""
