"""How a command is declared, given its context, and run."""
