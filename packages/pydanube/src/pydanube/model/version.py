"""The version of all distributions; their ``pyproject.toml`` say the same."""

__version__ = "0.1.0"
