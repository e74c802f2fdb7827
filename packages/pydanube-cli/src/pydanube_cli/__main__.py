"""The program ``danube``; it names the extra to install if packages are missing."""

from __future__ import annotations

import gc
import sys

from pydanube.model.extras import MissingExtra, require


def main() -> None:
    """Run the command that the arguments of the process name."""
    # Imports create many objects and hardly any garbage; ``cli.main.load`` ends this.
    gc.disable()
    try:
        if sys.argv[1:2] == ["broker"]:
            # This extra includes that of the command line.
            require("broker", "a broker")
        from pydanube_cli.main import main as run  # noqa: PLC0415  # It may be missing.
    except MissingExtra as missing:
        sys.exit(f"error: {missing}")
    run()


if __name__ == "__main__":
    main()
