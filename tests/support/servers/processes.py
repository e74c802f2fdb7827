"""A real broker in a process of its own."""

import os
import re
import signal
import subprocess
from contextlib import nullcontext
from pathlib import Path

from support.drivers.warm_brokers import start_broker
from support.servers.ports import free_port

START_TIMEOUT_S = 120
STANDARD_ERROR = 2


class BrokerProcess:
    """``danube broker`` on a data directory; killed at the end if still there."""

    def __init__(
        self, data_dir: Path, *options: str, log_file: Path | None = None
    ) -> None:
        self.data_dir = data_dir
        self.log_file = log_file
        """Where the broker's log goes; None for the log of the tests."""
        self._options = options
        self.stream_port = free_port()
        self.grpc_port = free_port()
        self.admin_port = free_port()
        self.mqtt_port: int | None = None
        """The port of the MQTT listener, if the options ask for one."""
        self.kafka_port: int | None = None
        """The port of the Kafka listener, if the options ask for one."""
        self.http_url = ""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "BrokerProcess":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    @property
    def url(self) -> str:
        return f"danube://127.0.0.1:{self.stream_port}"

    @property
    def grpc_url(self) -> str:
        return f"http://127.0.0.1:{self.grpc_port}"

    @property
    def http_port(self) -> int:
        return int(self.http_url.rpartition(":")[2])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started, and nobody has waited for its end."""
        return self._process is not None

    def children(self) -> list[int]:
        """Return the process ids of the processes that serve topics, if several do."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return [
            int(child)
            for task in tasks
            for child in (task / "children").read_text().split()
        ]

    def start(self) -> None:
        """Start, on the ports of the last time, and wait until it is ready."""
        self.spawn()
        if not self.wait_until_ready():
            raise AssertionError(f"the broker ended with {self.wait()}")

    def wait_until_ready(self) -> bool:
        """Wait until it is ready; return False if it ends before."""
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(r"danubes?://127\.0\.0\.1:(\d+)", line):
                self.stream_port = int(found[1])
            if found := re.search(r"grpc +https?://127\.0\.0\.1:(\d+)", line):
                self.grpc_port = int(found[1])
            if found := re.search(r"admin +https?://127\.0\.0\.1:(\d+)", line):
                self.admin_port = int(found[1])
            if found := re.search(r"mqtt +mqtts?://127\.0\.0\.1:(\d+)", line):
                self.mqtt_port = int(found[1])
            if found := re.search(r"kafka +kafkas?://127\.0\.0\.1:(\d+)", line):
                self.kafka_port = int(found[1])
            if found := re.search(r"http +(https?://127\.0\.0\.1:\d+)", line):
                self.http_url = found[1]
                # This is the last line with an address.
                return True
        return False

    def spawn(self) -> None:
        """Start, on the ports of the last time, without waiting."""
        assert self._process is None
        with nullcontext() if self.log_file is None else self.log_file.open("a") as log:
            self._process = start_broker(
                [
                    *("broker", "--data-dir", str(self.data_dir), "--http-port", "0"),
                    *("--stream-port", str(self.stream_port)),
                    *("--grpc-port", str(self.grpc_port)),
                    *("--admin-port", str(self.admin_port), *self._options),
                ],
                environment={
                    name: value
                    for name, value in os.environ.items()
                    if not name.startswith("DANUBE_")
                },
                errors=STANDARD_ERROR if log is None else log.fileno(),
            )

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it in good order; its exit code."""
        return self._end(signal.SIGTERM)

    def wait(self) -> int:
        """Wait until somebody else has ended it; its exit code."""
        assert self._process is not None
        code = self._process.wait()
        process, self._process = self._process, None
        assert process.stdout is not None
        process.stdout.close()
        return code

    def _end(self, number: int) -> int:
        assert self._process is not None
        process, self._process = self._process, None
        process.send_signal(number)
        code = process.wait(timeout=START_TIMEOUT_S)
        assert process.stdout is not None
        process.stdout.close()
        return code
