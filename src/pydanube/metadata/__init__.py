"""
What brokers must remember besides messages: small records under typed keys.

``store`` says what a store promises, ``keys`` is the map of everything in it,
``memory`` and ``sqlite`` are the stores.
"""
