"""
A Python interpreter that starts at once, for the Python processes of Spark.

Spark starts a Python process for each stream and for each step of planning.  Importing
pyspark and pyarrow takes a process a second, and on a busy machine longer than the ten
seconds after which Spark gives up.  A ``WarmPython`` has one server, which imports them
once.  Its program passes its arguments, environment, directory and standard streams to
the server, which forks a process that runs the module.

This file is both the library and the two programs: ``serve SOCKET`` is the server, and
``run SOCKET -m MODULE …`` is the interpreter.  It imports only what the latter needs.
"""

import os
import socket
import sys

STREAMS = 3
"""Standard input, output and error."""

SIZE_BYTES = 4
REQUEST_BYTES_MAX = 1 << 20

MODULES = (
    "pandas",
    "pydanube_spark.sinks.clickhouse",
    "pydanube_spark.sinks.postgres",
    "pydanube_spark.source",
    "pydanube_spark.topic_sink",
    "pydanube.sync",
    "pydanube_spark.tables.iceberg",
    "pyiceberg.catalog.sql",
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
)
"""What the server imports: all that takes long and starts no threads."""

ENVIRONMENT = {
    # As Spark starts Python.
    "PYTHONHASHSEED": "0",
    # A library that has started a thread cannot be forked.
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}


class WarmPython:
    """The server and its program; ``with`` starts and ends the server."""

    def __init__(self, directory):
        self.program = directory / "python"
        self._socket = directory / "python.socket"

    def __enter__(self):
        import subprocess

        command = [sys.executable, "-u", __file__, "serve", self._socket]
        self._server = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | ENVIRONMENT,
        )
        if self._server.stdout.readline() != b"ready\n":
            self._server.communicate()
            raise AssertionError("the server has not started; its error is above")
        self.program.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -IS "{__file__}" run '
            f'"{self._socket}" "$@"\n'
        )
        self.program.chmod(0o700)
        return self

    def __exit__(self, *_):
        # It ends when its input does.
        self._server.communicate()


def run(path, *arguments):
    """Run *arguments* in a process that the server forks, and exit as it does."""
    import json

    if arguments[:1] != ("-m",):
        os.execv(sys.executable, [sys.executable, *arguments])
    request = [arguments[1:], os.getcwd(), dict(os.environ)]  # noqa: PTH109
    encoded = json.dumps(request).encode("utf-8", "surrogateescape")
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(
            server, [len(encoded).to_bytes(SIZE_BYTES, "big")], range(STREAMS)
        )
        server.sendall(encoded)
        # Only the forked process holds them now.
        for number in range(STREAMS):
            os.close(number)
        code = server.recv(1)
    os._exit(code[0] if code else 1)


class Server:
    """Forks a process for each request, until its standard input ends."""

    def __init__(self, path):
        import selectors
        import signal

        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(64)
        self._children = {}
        """The processes that run, by the connections of their programs."""
        self._ended, self._wakeup = socket.socketpair()
        self._wakeup.setblocking(False)
        signal.set_wakeup_fd(self._wakeup.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for source in (0, self._listener, self._ended):
            self._selector.register(source, selectors.EVENT_READ)

    def next_request(self):
        """Return the request in a process that was forked for it; None at the end."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    return None
                if key.fileobj is self._ended:
                    self._ended.recv(64)
                    self._report_ends()
                elif key.fileobj is self._listener:
                    if (request := self._accept()) is not None:
                        return request
                elif key.fileobj in self._children:
                    self._end(key.fileobj)

    def _accept(self):
        import selectors

        connection, _ = self._listener.accept()
        size, streams, _, _ = socket.recv_fds(connection, SIZE_BYTES, STREAMS)
        request = _read(connection, int.from_bytes(size, "big"))
        pid = os.fork()
        if pid == 0:
            self._leave(connection, streams)
            return request
        for number in streams:
            os.close(number)
        self._children[connection] = pid
        self._selector.register(connection, selectors.EVENT_READ)
        return None

    def _leave(self, connection, streams):
        """Keep nothing of the server in a forked process."""
        import signal

        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for each in (self._listener, self._ended, self._wakeup, connection):
            each.close()
        for each in self._children:
            each.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)

    def _end(self, connection):
        """End the process of a program that was killed."""
        import signal

        os.kill(self._children[connection], signal.SIGTERM)
        self._selector.unregister(connection)

    def _report_ends(self):
        """Tell the programs of processes that have ended how they ended."""
        from contextlib import suppress

        for connection, pid in list(self._children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._children[connection]
                code = os.waitstatus_to_exitcode(status)
                with suppress(KeyError):
                    self._selector.unregister(connection)
                with connection, suppress(OSError):
                    # As a shell does for a process that a signal ended.
                    connection.send(bytes([code if code >= 0 else 128 - code]))


def _read(connection, size):
    import json

    assert 0 < size <= REQUEST_BYTES_MAX, size
    parts = []
    while size:
        parts.append(connection.recv(size))
        assert parts[-1], "the program has ended"
        size -= len(parts[-1])
    return json.loads(b"".join(parts).decode("utf-8", "surrogateescape"))


def serve(path):
    """Import everything, say so, and serve; forked processes run their modules."""
    import gc
    import importlib
    import runpy

    import psutil

    # The directory of this file is not where modules are.
    del sys.path[0]
    for name in MODULES:
        importlib.import_module(name)
    count = psutil.Process().num_threads()
    assert count == 1, f"{count} threads; only one survives a fork"
    gc.freeze()
    server = Server(path)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if (request := server.next_request()) is None:
        return
    [module, *arguments], directory, environment = request
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    given = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [directory, *filter(None, given)]
    sys.argv[:] = [module, *arguments]
    # It is imported again, as the main module.
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    program, *words = sys.argv[1:]
    {"serve": serve, "run": run}[program](*words)
