"""
The metadata of brokers: small records under typed keys.

``store`` is the interface, ``sqlite`` keeps the records in a file, and ``keys`` lists
all keys.
"""
