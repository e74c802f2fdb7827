"""The command line, `danube`."""

from pydanube.model.extras import require

require("cli", "the command line")
