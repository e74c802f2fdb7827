"""
The metadata of brokers: small records under typed keys.

``store`` keeps them in an SQLite file, and ``keys`` lists all keys.
"""
