"""The data directory of a broker, its identity, and its metadata."""
