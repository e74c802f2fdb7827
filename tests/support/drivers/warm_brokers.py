"""
Broker processes that start at once, because they are forked from one that imported all.

Importing the broker takes a second of processor time, most of what a test with a small
broker takes, and a run starts hundreds.  One server for each process of pytest imports
it once, and forks a process for each broker, which is a child of the process of pytest
as one of ``subprocess`` is.

This file is both the library and the program of the server.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
import time
from functools import cache
from typing import Any

MODULE = "pydanube_cli.main"
IMPORTED = (
    MODULE,
    "pydanube_cli.commands.broker",
    "pydanube_broker.servers.run",
    "pydanube_broker.servers.http.server",
    "pydanube_mqtt.listener",
    "pydanube_kafka.listener",
    "uvicorn",
)
"""What the server imports: all that takes long and starts no threads."""
ENVIRONMENT = {
    # A library that has started a thread cannot be forked.
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
REQUEST_BYTES_MAX = 1 << 18
PR_SET_CHILD_SUBREAPER = 36


def start_broker(
    arguments: list[str], environment: dict[str, str], errors: int
) -> subprocess.Popen[str]:
    """
    Start ``danube`` with *arguments*; its standard output is a pipe.

    Its errors go to the descriptor *errors*.
    """
    return _server().start(arguments, environment, errors)


class _Forked(subprocess.Popen[str]):
    """A child of this process that another process has forked."""

    def __init__(self, pid: int, arguments: list[str], output: int) -> None:
        # As after the constructor of the base class, which would start a process.
        self._waitpid_lock = threading.Lock()
        self._input = None
        self._communication_started = False
        self._child_created = True
        self._sigint_wait_secs = 0.25
        self._closed_child_pipe_fds = True
        self.args, self.pid, self.returncode = arguments, pid, None
        self.stdin = self.stderr = None
        self.stdout = open(output, encoding="utf-8")  # noqa: SIM115
        self.text_mode = True
        self.encoding = self.errors = None
        self.pipesize, self.process_group = -1, None


class _Server:
    """The process that forks brokers; it ends when this one does."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._is_free = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=os.environ | ENVIRONMENT,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()

    def start(
        self, arguments: list[str], environment: dict[str, str], errors: int
    ) -> subprocess.Popen[str]:
        directory = os.getcwd()  # noqa: PTH109
        request = json.dumps([arguments, directory, environment]).encode()
        assert len(request) < REQUEST_BYTES_MAX
        output, theirs = os.pipe()
        try:
            # It may be called in any thread.
            with self._is_free:
                _adopt_orphans(True)
                try:
                    socket.send_fds(self._socket, [request], [theirs, errors])
                    answer = self._socket.recv(64)
                finally:
                    _adopt_orphans(False)
        finally:
            os.close(theirs)
        assert answer, "the server of brokers has ended; its error is above"
        return _Forked(int(answer), arguments, output)


@cache
def _server() -> _Server:
    return _Server()


def _adopt_orphans(value: bool) -> None:
    """Let processes whose parent ends become children of this one, or not."""
    done = ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(value), 0, 0, 0)
    assert done == 0


def serve(connection: socket.socket) -> list[Any] | None:
    """Fork a process for each request, where it is returned; None at the end."""
    while True:
        request, streams, _, _ = socket.recv_fds(connection, REQUEST_BYTES_MAX, 2)
        if not request:
            return None
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            parent = os.getpid()
            if (pid := os.fork()) != 0:
                os.write(writing, str(pid).encode())
                os._exit(0)
            os.close(reading)
            os.close(writing)
            # The end of its parent gives it to the process of pytest.
            while os.getppid() == parent:
                time.sleep(0.0005)
            connection.close()
            for number, stream in enumerate(streams, 1):
                os.dup2(stream, number)
                os.close(stream)
            return json.loads(request)
        for each in (writing, *streams):
            os.close(each)
        pid = os.read(reading, 64)
        os.close(reading)
        # Before the process of pytest adopts no more orphans.
        os.waitpid(between, 0)
        connection.send(pid)


def main() -> None:
    """Import everything, and serve; forked processes run their commands."""
    import gc
    import importlib
    import runpy

    import psutil

    # The directory of this file is not where modules are.
    del sys.path[0]
    for name in IMPORTED:
        importlib.import_module(name)
    count = psutil.Process().num_threads()
    assert count == 1, f"{count} threads; only one survives a fork"
    gc.freeze()
    found = serve(socket.socket(fileno=int(sys.argv[1])))
    if found is None:
        return
    arguments, directory, environment = found
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.path.insert(0, directory)
    sys.argv[:] = [MODULE, *arguments]
    # It is imported again, as the main module.
    sys.modules.pop(MODULE, None)
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
