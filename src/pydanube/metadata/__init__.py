"""
The metadata of brokers: small records under typed keys.

``store`` defines the interface, ``keys`` lists all keys, and ``sqlite`` implements the
store.
"""
