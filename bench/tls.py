"""
What TLS costs: throughput and processor time with and without it, side by side.

``python -m bench.tls`` starts a broker without TLS and one with it, publishes the same
messages to both, and consumes them with a program that reads each message, in turns,
because the machine may be busy.  It also measures the encryption, the decryption and
the handshakes alone, in one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from pydanube.aio.tls_connection import ENCRYPTED_BYTES_AT_ONCE
from pydanube_cli.bench.broker_process import BrokerProcess, running_broker

MESSAGE_BYTES = 100
BATCH_MESSAGES = 1000
BATCH_BYTES = 110_000
"""A batch of that size with its headers, as the native protocol sends it."""
REPEATS = 200
"""How many batches are encrypted and decrypted for one figure."""
HANDSHAKES = 300
ROWS = {"publish": "publish", "backlog": "consume a backlog, each message read"}
"""The workloads of ``danube bench``, and the row of each that is reported."""


@dataclass(frozen=True, slots=True)
class Round:
    """The figures of one workload with one broker."""

    per_second: float
    client_us_per_batch: float
    broker_us_per_batch: float


def measure(broker: BrokerProcess, url: str, workload: str, messages: int) -> Round:
    """Run a workload of ``danube bench`` once."""
    process = psutil.Process(broker.pid)
    before = process.cpu_times()
    command = [sys.executable, "-m", "pydanube_cli", "bench", "--workload", workload]
    command += ["--messages", str(messages), "--message-bytes", str(MESSAGE_BYTES)]
    command += ["--batch-messages", str(BATCH_MESSAGES)]
    command += ["--url", url, "--format", "json"]
    done = subprocess.run(  # noqa: S603  # Our own program.
        command, capture_output=True, text=True, check=True
    )
    after = process.cpu_times()
    rows = json.loads(done.stdout)["rows"]
    row = next(row for row in rows if row["workload"] == ROWS[workload])
    cpu_s = after.user + after.system - before.user - before.system
    return Round(
        per_second=row["per_second"],
        client_us_per_batch=row["client_cpu_s_per_million"] * BATCH_MESSAGES,
        broker_us_per_batch=cpu_s * 1e6 / (len(rows) * messages / BATCH_MESSAGES),
    )


class Pair:
    """A server and a client of TLS in memory, after the handshake."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
        self.to_server, self.to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = server.wrap_bio(self.to_server, self.to_client, server_side=True)
        self.client = client.wrap_bio(
            self.to_client, self.to_server, server_hostname="localhost"
        )
        waiting = [self.client, self.server]
        while waiting:
            end = waiting.pop(0)
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                waiting.append(end)

    def transfer(self, data: bytes, buffer: memoryview) -> tuple[float, float]:
        """Return the processor time of encrypting and of decrypting *data*."""
        begun = time.thread_time()
        rest, encrypted = memoryview(data), []
        while rest:
            self.server.write(rest[:ENCRYPTED_BYTES_AT_ONCE])
            rest = rest[ENCRYPTED_BYTES_AT_ONCE:]
            encrypted.append(self.to_client.read())
        between = time.thread_time()
        count = 0
        for part in encrypted:
            self.to_client.write(part)
            while self.to_client.pending or self.client.pending():
                read = self.client.read(len(buffer), buffer)
                assert isinstance(read, int)
                count += read
        assert count == len(data)
        return between - begun, time.thread_time() - between


def measure_alone(certificates: Path) -> dict[str, float]:
    """Return the cost of one batch in microseconds, and handshakes per second."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.num_tickets = 0
    server.load_cert_chain(certificates / "server.pem", certificates / "server-key.pem")
    client = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    begun = time.thread_time()
    for _ in range(HANDSHAKES):
        Pair(server, client)
    handshakes_s = time.thread_time() - begun
    pair = Pair(server, client)
    data, buffer = os.urandom(BATCH_BYTES), memoryview(bytearray(2**17))
    times = [pair.transfer(data, buffer) for _ in range(REPEATS)]
    return {
        "encrypt_us": 1e6 * median(encrypt for encrypt, _ in times),
        "decrypt_us": 1e6 * median(decrypt for _, decrypt in times),
        "handshakes_per_s": HANDSHAKES / handshakes_s,
    }


def main() -> None:
    """Measure, and print what was found as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    found: dict[str, list[Round]] = defaultdict(list)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        certificates = directory / "certs"
        make = [
            sys.executable,
            "-m",
            "pydanube_cli",
            "certs",
            "init",
            str(certificates),
        ]
        subprocess.run(make, capture_output=True, check=True)  # noqa: S603
        tls = {
            "DANUBE_TLS__CERTIFICATE_FILE": str(certificates / "server.pem"),
            "DANUBE_TLS__KEY_FILE": str(certificates / "server-key.pem"),
        }
        brokers = {
            name: stack.enter_context(
                running_broker(directory / name, directory / f"{name}.log", settings)
            )
            for name, settings in (("plain", {}), ("tls", tls))
        }
        query = {"plain": "", "tls": f"?ca_file={certificates / 'ca.pem'}"}
        for _ in range(given.rounds):
            for workload in ROWS:
                for name, broker in brokers.items():
                    url = broker.url() + query[name]
                    figures = measure(broker, url, workload, given.messages)
                    found[f"{workload} {name}"].append(figures)
        alone = measure_alone(certificates)
    sys.stdout.write(json.dumps(_summary(found) | {"alone": alone}, indent=2) + "\n")


def _summary(found: dict[str, list[Round]]) -> dict[str, object]:
    """Return the medians and extremes of the rounds, and what TLS leaves."""
    summary: dict[str, object] = {}
    for workload in ROWS:
        plain, tls = found[f"{workload} plain"], found[f"{workload} tls"]
        ratios = [b.per_second / a.per_second for a, b in zip(plain, tls, strict=True)]
        summary[workload] = {
            "ratio_median": median(ratios),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
            **{
                f"{name}_{field}": (
                    median(getattr(each, field) for each in rounds),
                    min(getattr(each, field) for each in rounds),
                )
                for name, rounds in (("plain", plain), ("tls", tls))
                for field in Round.__slots__
            },
        }
    return summary


if __name__ == "__main__":
    main()
