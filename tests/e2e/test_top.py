"""`danube top` on a terminal and in a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios

import pytest

from support.drivers.commands import DANUBE, danube, environment
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPIC = "/default/orders-of-europe"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        for line in ("one\n", "two\n"):
            assert danube("produce", TOPIC, url=broker.url, stdin=line).returncode == 0
        yield broker.url


class Terminal:
    """A command on a terminal of this process."""

    def __init__(self, *arguments: str, url: str) -> None:
        self._master, slave = pty.openpty()
        self.resize(24, 80)
        variables = environment(url) | {"TERM": "xterm"}
        self.process = subprocess.Popen(
            [*DANUBE, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=variables,
        )
        os.close(slave)
        self._read = ""

    def resize(self, rows: int, columns: int) -> None:
        """Change the size; the caller sends SIGWINCH, as there is no session."""
        fcntl.ioctl(
            self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0)
        )

    def until(self, text: str) -> str:
        """Return the output up to *text*, which was not returned yet."""
        while text not in self._read:
            self._read += os.read(self._master, 65536).decode()
        found, _, self._read = self._read.partition(text)
        return found

    def close(self) -> None:
        os.close(self._master)


def test_view_is_drawn_resized_and_left_cleanly(url):
    terminal = Terminal("top", "--interval", "0.1s", url=url)
    try:
        terminal.until("\x1b[?1049h")
        terminal.until("Topic ")
        terminal.until(f"{TOPIC} ")
        terminal.resize(24, 40)
        terminal.process.send_signal(signal.SIGWINCH)
        # The name does not fit any more, so it is on two lines.
        while TOPIC in terminal.until("Topic "):
            pass
        terminal.process.send_signal(signal.SIGINT)
        rest = terminal.until("\x1b[?1049l")
        assert "Traceback" not in rest
        assert terminal.process.wait(timeout=60) == 130
    finally:
        terminal.close()


def test_one_sample_is_printed_without_a_terminal(url):
    done = danube("top", "--interval", "0.1s", url=url)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert done.stdout.count(TOPIC) == 1
    answer = danube("top", "--interval", "0.1s", "--format", "json", url=url)
    [topic] = json.loads(answer.stdout)["topics"]
    assert (topic["topic"], topic["published_per_s"]) == (TOPIC, 0.0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--interval", "0.01s"), "at least 0.1s"),
        (("--sort", "age"), "rate, lag, size"),
    ],
)
def test_invalid_options_are_refused(url, options, said):
    done = danube("top", *options, url=url)
    assert done.returncode == 2
    assert said in done.stderr
