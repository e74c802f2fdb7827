"""
Publishing to Danube's gRPC interface and receiving from it, with a Go client.

``python -m bench.go_client`` builds ``bench/go_client`` (it needs Go, and the Go module
proxy for grpc-go), starts a broker of this checkout, and publishes messages of 100 B to
a reliable topic: on 64 connections, each with one call at a time, and on one.  Then
the same connections receive such messages from one shared subscription, and each
acknowledges one message after the other.  It prints the rates, the times of calls, and
the processor time of both sides.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from bench.scale import Table, tell
from bench.usage import processor_s
from pydanube_cli.bench.broker_process import BrokerProcess, running_broker
from pydanube_cli.bench.machine import measure_machine

SOURCE = Path(__file__).parent / "go_client"
WARM_S = 0.5


def build(directory: Path) -> Path:
    """
    Build the client in *directory*, and return its path.

    Raises:
        SystemExit: There is no Go, or its modules cannot be had.
    """
    go = shutil.which("go")
    if go is None:
        sys.exit("bench.go_client needs Go: install it, and run this again")
    program = directory / "go_client"
    built = subprocess.run(  # noqa: S603
        [go, "build", "-o", str(program), "."], cwd=SOURCE, check=False
    )
    if built.returncode:
        sys.exit(f"the client in {SOURCE} cannot be built; see above")
    return program


def measured(
    program: Path, broker: BrokerProcess, *options: str, connections: int
) -> dict[str, Any]:
    """Run the client with *options*; return its figures and those of the broker."""
    command = [
        str(program),
        *("-address", broker.url("grpc").partition("//")[2]),
        *("-connections", str(connections), *options),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as client:  # noqa: S603
        assert client.stdout is not None
        # It prints a line when the time that it measures begins.
        client.stdout.readline()
        before_s = processor_s([broker.pid])
        printed = client.stdout.read()
    if client.returncode:
        sys.exit(f"{program} failed; see above")
    found: dict[str, Any] = json.loads(printed)
    used_s = processor_s([broker.pid]) - before_s
    return found | {"broker_us": used_s / found["messages"] * 1e6}


def main() -> None:
    """Measure with the numbers of connections that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", default="64,1", metavar="N,N")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--data-dir", type=Path, default=None)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.data_dir) as name:
        place = Path(name)
        program = build(place)
        machine = measure_machine(place)
        tell(f"{machine.cores} cores, fdatasync {machine.fdatasync_us:.0f} µs\n")
        table = Table()
        with running_broker(place / "data", place / "log", {}) as broker:
            for count, (what, *options) in product(
                map(int, asked.connections.split(",")),
                (["publish"], ["receive and acknowledge", "-receive"]),
            ):
                measure = partial(
                    measured, program, broker, *options, "-seconds", connections=count
                )
                measure(str(WARM_S))
                found = [measure(str(asked.seconds)) for _ in range(asked.rounds)]
                figures = {key: median(each[key] for each in found) for key in found[0]}
                table.row(
                    f"{what}, {count} connections",
                    "{rate:,.0f}/s, p50 {p50_us:,.0f} µs, p99 {p99_us:,.0f}; processor "
                    "time {broker_us:.0f} + {client_us:.0f} µs, broker and "
                    "client".format(**figures),
                )


if __name__ == "__main__":
    main()
