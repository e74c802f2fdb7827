"""
Schemas: what payloads mean, which versions understand each other, how to decode.

One file or package for each language; ``format.py`` has the words that they share,
``parsing.py`` finds the right one, ``compatibility.py`` has the modes.  Definitions
come from clients, so sizes, depths and steps are bounded.
"""
