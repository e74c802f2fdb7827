"""
Schemas: parsing, validation, compatibility, decoding and encoding.

There is one module or package for each schema language; ``language.py`` has the types
and limits that they share, ``parsing.py`` chooses the language, and
``compatibility.py`` applies the modes.  Definitions come from clients, so their sizes
and depths, and the steps that they cause, are bounded.
"""
