"""The command line: `danube`, one module for each command."""

from pydanube.model.extras import require

require("cli", "the command line")
