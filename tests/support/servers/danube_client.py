"""Danube's own Python client, in an environment and in processes of its own."""

from __future__ import annotations

import base64
import fcntl
import json
import subprocess
import sys
import threading
import venv
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any

from support.project import ROOT

ENVIRONMENT = ROOT / ".venv-danube-client"
CLIENT = "danube-client==0.5.0"
DRIVER = Path(__file__).parents[1] / "drivers" / "danube_client_driver.py"
ANSWER_TIMEOUT_S = 60


def client_python() -> Path:
    """
    The Python that has the client, installed the first time it is asked for.

    It fails where that cannot be done: then nothing is known about whether clients
    of Danube work.
    """
    python = ENVIRONMENT / "bin" / "python"
    ENVIRONMENT.mkdir(exist_ok=True)
    with (ENVIRONMENT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = ENVIRONMENT / "ready"
        if not ready.exists() or ready.read_text() != CLIENT:
            venv.create(ENVIRONMENT)
            pip = [sys.executable, "-m", "pip", "--python", python]
            install = [*pip, "install", "--quiet", "--no-compile", CLIENT]
            done = subprocess.run(install, check=False, capture_output=True, text=True)
            assert done.returncode == 0, f"{CLIENT} cannot be installed: {done.stderr}"
            ready.write_text(CLIENT)
    return python


class DanubeClient:
    """
    One client of Danube in a process of its own.

    Every command of the driver can be called as a method; ``start`` gives its future.
    """

    def __init__(self, url: str, **options: Any) -> None:
        """Connect to *url*; *options* are those of the driver's ``connect``."""
        self._process = subprocess.Popen(
            [client_python(), DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._numbers = count()
        self._waiting: dict[int, Future[Any]] = {}
        self._said: list[str] = []
        self._threads = [
            threading.Thread(target=self._read_answers, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self.connect(url=url, **options)

    def __enter__(self) -> DanubeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def __getattr__(self, command: str) -> Any:
        if command.startswith("_"):
            raise AttributeError(command)
        return lambda *args, **kwargs: self.start(command, *args, **kwargs).result(
            ANSWER_TIMEOUT_S
        )

    def start(self, command: str, /, **arguments: Any) -> Future[Any]:
        """Start a command; the future of its result."""
        number = next(self._numbers)
        future: Future[Any] = Future()
        self._waiting[number] = future
        line = json.dumps({"id": number, "do": command, "with": arguments})
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return future

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (
            self._process.stdin,
            self._process.stdout,
            self._process.stderr,
        ):
            assert stream is not None
            stream.close()

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            future = self._waiting.pop(answer["id"])
            if "error" in answer:
                future.set_exception(ClientFailed(answer["error"]))
            else:
                future.set_result(answer["result"])
        for future in self._waiting.values():
            future.set_exception(ClientFailed("\n".join(self._said) or "it ended"))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._said += [line.rstrip() for line in self._process.stderr]


class ClientFailed(Exception):
    """What the client of Danube raised."""


def encoded(payload: bytes | str) -> str:
    """A payload for a command."""
    data = payload.encode() if isinstance(payload, str) else payload
    return base64.b64encode(data).decode()


def payloads(messages: list[dict[str, Any]]) -> list[bytes]:
    """The payloads of messages that were told."""
    return [base64.b64decode(message["payload"]) for message in messages]
