"""The command line: `danube`, one module for each command."""
