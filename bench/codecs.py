"""
The costs of the client with and without the extra ``fast``, side by side.

``python -m bench.codecs`` starts a broker and runs the same programs with Arrow and
without it in turns, because the machine may be busy, and prints the rows of the table
in ``docs/guide/install.md``.  Sizes are those of the installed packages, with bytecode.
"""

from __future__ import annotations

import argparse
import json
import marshal
import subprocess
import sys
import tempfile
from collections import defaultdict
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from statistics import median

from bench.codec_client import WORKLOADS
from pydanube_cli.bench.broker_process import running_broker

HIDDEN = "import sys; sys.modules['pyarrow'] = sys.modules['uvloop'] = None; "
"""Makes a program run as if the packages of ``fast`` were not installed."""
RUN = "import runpy; runpy.run_module('bench.codec_client', run_name='__main__')"
VARIANTS = {"pydanube": HIDDEN, "pydanube[fast]": ""}
PACKAGES = ("pydanube", "crc32c", "google.protobuf")
FAST = ("pyarrow", "uvloop")
CODE_HEADER_BYTES = 16
"""The bytes of a file with bytecode before its code."""
ROWS = {
    "publish": ("publish lists of 1,000 payloads of 100 bytes", "µs"),
    "keys": ("the same with a key for each message", "µs"),
    "consume": ("consume such batches, read every payload, acknowledge", "µs"),
    "send": ("`send`, awaited, one message with a key after the other", "ms"),
}


def measure(url: str, workload: str, variant: str, number: int, messages: int) -> float:
    """Run a workload once in a process of its own, and return its figure."""
    topic = f"/default/codecs-{number}"
    command = [sys.executable, "-c", VARIANTS[variant] + RUN, url, workload, topic]
    done = subprocess.run(  # noqa: S603  # Our own program.
        [*command, str(messages)], stdout=subprocess.PIPE, text=True, check=True
    )
    return float(json.loads(done.stdout))


def installed_bytes(names: tuple[str, ...]) -> int:
    """Return the size of packages with the bytecode of all their modules."""
    total = 0
    for name in names:
        spec = find_spec(name)
        assert spec is not None
        for root in spec.submodule_search_locations or ():
            for path in Path(root).rglob("*"):
                if path.is_file() and path.suffix != ".pyc":
                    total += path.stat().st_size + _bytecode_bytes(path)
    return total


def _bytecode_bytes(path: Path) -> int:
    if path.suffix != ".py":
        return 0
    try:
        code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except SyntaxError:
        # A template of a package.
        return 0
    return CODE_HEADER_BYTES + len(marshal.dumps(code))


def main() -> None:
    """Measure, and print the rows of the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    numbers = count()
    with tempfile.TemporaryDirectory() as directory:
        data, log = Path(directory) / "data", Path(directory) / "broker.log"
        with running_broker(data, log, {}) as broker:
            for _ in range(given.rounds):
                for workload in WORKLOADS:
                    for variant in VARIANTS:
                        figure = measure(
                            broker.url(),
                            workload,
                            variant,
                            next(numbers),
                            given.messages,
                        )
                        found[workload, variant].append(figure)
    plain = installed_bytes(PACKAGES)
    sizes = [plain, plain + installed_bytes(FAST)]
    shown = [f"{size / 1e6:.0f} MB" for size in sizes]
    lines = [
        f"| | {' | '.join(f'`{name}`' for name in VARIANTS)} |",
        "|---|---|---|",
        f"| installed, with bytecode | {' | '.join(shown)} |",
    ]
    for workload, (name, unit) in ROWS.items():
        scale = 1000 if unit == "ms" else 1
        figures = [
            f"{median(found[workload, variant]) / scale:.2f} {unit}"
            for variant in VARIANTS
        ]
        lines.append(f"| {name} | {' | '.join(figures)} |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
