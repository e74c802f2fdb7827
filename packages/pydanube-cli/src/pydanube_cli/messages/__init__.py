"""Messages on the command line: chosen, read and written."""
