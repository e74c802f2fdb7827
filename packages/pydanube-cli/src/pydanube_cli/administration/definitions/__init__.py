"""The definitions of a broker or a cluster: without messages, positions and secrets."""
