"""Settings of a server, and the addresses, logs and keys they set up."""
