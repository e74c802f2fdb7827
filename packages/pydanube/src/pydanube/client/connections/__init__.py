"""Connections to brokers, and the requests and channels on them."""
