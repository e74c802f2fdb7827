"""The sinks: a module for each system that messages are written to."""
