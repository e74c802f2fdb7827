"""Segments and the logs of topics that consist of them."""
