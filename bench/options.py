"""The command-line options."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.payloads import HEADER_BYTES
from bench.plan import WORKLOADS
from bench.systems import NAMES
from pydanube_cli.bench.figures import Durability

if TYPE_CHECKING:
    from collections.abc import Iterable

CLASSES = {
    "memory": Durability.MEMORY,
    "page-cache": Durability.PAGE_CACHE,
    "synced": Durability.SYNCED,
}
EPILOG = """\
examples:
  python -m bench --list                              what is installed here
  python -m bench --quick                             everything once, to try it out
  python -m bench                                     the whole measurement
  python -m bench --systems danube,nats --workloads both --sizes 100,1024
  python -m bench --minutes 10 --systems danube --durability synced
  python -m bench --from bench-results/results.json --format markdown
  python -m bench --from monday/results.json tuesday/results.json --output both
"""


def parser_of_command() -> argparse.ArgumentParser:
    """Return the parser of ``python -m bench``."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure pydanube and its peers side by side, on this machine. "
        "Servers are started and stopped; missing ones are skipped and reported.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    for name, options in OPTIONS.items():
        add(name, **options)
    return parser


def _names(text: str, known: Iterable[str]) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(
                f"there is no {name!r}; choose from {', '.join(known)}"
            )
    return names


def _sizes(text: str) -> list[int]:
    sizes = [int(size) for size in text.split(",")]
    if min(sizes) < HEADER_BYTES:
        raise argparse.ArgumentTypeError("a message has at least 16 bytes")
    return sizes


OPTIONS: dict[str, dict[str, Any]] = {
    "--systems": {
        "help": f"which systems: {', '.join(NAMES)}",
        "type": lambda text: _names(text, NAMES),
        "default": list(NAMES),
        "metavar": "A,B",
    },
    "--workloads": {
        "help": f"which workloads: {', '.join(WORKLOADS)}",
        "type": lambda text: _names(text, WORKLOADS),
        "metavar": "A,B",
    },
    "--durability": {
        "help": f"which classes: {', '.join(CLASSES)}",
        "type": lambda text: [CLASSES[name] for name in _names(text, CLASSES)],
        "default": list(CLASSES.values()),
        "metavar": "A,B",
    },
    "--sizes": {
        "help": "payload bytes, at least 16; by default what each workload is about",
        "type": _sizes,
        "metavar": "N,N",
    },
    "--rounds": {"help": "rounds of everything (5)", "type": int, "metavar": "N"},
    "--seconds": {
        "help": "about so long is a run (5)",
        "type": float,
        "metavar": "S",
    },
    "--quick": {
        "help": "one round of half a second, 100 bytes, of each system only its most "
        "durable class, and no workloads that vary another: whether it works, not how "
        "fast",
        "action": "store_true",
    },
    "--minutes": {
        "help": "instead: publish and consume for so long, and watch rate and memory",
        "type": float,
        "metavar": "N",
    },
    "--output": {
        "help": "where results, page and charts go (bench-results)",
        "type": Path,
        "metavar": "DIR",
    },
    "--data-dir": {
        "help": "where servers keep their data meanwhile: choose the disk to measure",
        "type": Path,
        "metavar": "DIR",
    },
    "--format": {
        "help": "what is printed at the end",
        "choices": ("table", "json", "markdown"),
        "default": "table",
    },
    "--list": {"help": "say what would be measured, and end", "action": "store_true"},
    "--from": {
        "help": "measure nothing, and print earlier results.json, several as one; with "
        "--output, write them with page and charts",
        "dest": "read",
        "type": Path,
        "nargs": "+",
        "metavar": "FILE",
    },
}
