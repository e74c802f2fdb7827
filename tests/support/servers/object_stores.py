"""
Servers of object stores, for tests.

moto, with S3's API, and Redis are for all tests.  ``tools/object-stores`` installs the
others, which are for the long tests.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import os
import subprocess
import threading
from contextlib import ExitStack, contextmanager
from email.utils import formatdate
from http.client import HTTPConnection
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol
from uuid import uuid4

from support.servers.ports import free_port
from support.servers.programs import required_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ACCESS_KEY = "AKIATESTACCESSKEY"
SECRET_KEY = "verysecretsecretkeyofthetests"
REDIS_PASSWORD = "verysecretredispassword"
AZURE_ACCOUNT = "danubetests"
AZURE_KEY = base64.b64encode(b"the very secret key of the account").decode()
WRONG_KEY = base64.b64encode(b"a wrong and very secret key of some kind").decode()
SECRETS = (ACCESS_KEY, SECRET_KEY, REDIS_PASSWORD, AZURE_KEY, WRONG_KEY)

BUCKET = "danube"

INSTALLED = Path(__file__).parents[3] / ".venv" / "object-stores"
"""Where ``tools/object-stores`` installs servers."""

Store = tuple[str, dict[str, str]]
"""The URL and the options of an object store."""


class StoreServer(Protocol):
    """A server of an object store; ``with`` starts and ends it."""

    port: int

    def __enter__(self) -> StoreServer: ...

    def __exit__(self, *_: object) -> None: ...

    def new_store(self, port: int | None = None) -> Store:
        """Return an empty store, for access to the server or to a proxy at *port*."""


class _Process:
    """A program that says on its output when it is ready."""

    def __init__(self, command: list[object], ready: bytes, **environment: str) -> None:
        self._process = subprocess.Popen(
            [str(part) for part in command],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output = b""
        for line in self._process.stdout:
            output += line
            if ready in line:
                break
        else:
            self._process.wait()
            raise AssertionError(f"{command[0]} did not start: {output.decode()}")
        # Nobody needs its further output, but it must not wait for a reader.
        self._draining = threading.Thread(target=self._process.stdout.read)
        self._draining.start()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._draining.join()
        self._process.stdout.close()


def _installed(program: str) -> Path:
    path = INSTALLED / program
    assert path.exists(), f"this test needs {path.name}: tools/object-stores"
    return path


def _call(
    port: int,
    method: str,
    path: str,
    data: bytes = b"",
    headers: dict[str, str] | None = None,
) -> None:
    connection = HTTPConnection("127.0.0.1", port)
    connection.request(method, path, data, headers or {})
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    assert response.status < 300, (response.status, answer)


def _s3_store(port: int) -> Store:
    options = {
        "endpoint": f"http://127.0.0.1:{port}",
        "region": "us-east-1",
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
        # Nothing of the machine's own configuration.
        "disable_config_load": "true",
        "disable_ec2_metadata": "true",
    }
    return f"s3://{BUCKET}/{uuid4().hex}/objects", options


class _OneConditionalPut:
    """
    Lets moto answer one request with a condition at a time.

    It looks for the object and then stores it, and another thread may do so in between.
    """

    def __init__(self, app: Callable) -> None:
        self._app = app
        self._lock = threading.Lock()

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        if "HTTP_IF_NONE_MATCH" not in environ:
            return self._app(environ, start_response)
        # Others do not wait until the request has arrived.
        data = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        with self._lock:
            arrived = environ | {"wsgi.input": BytesIO(data)}
            return list(self._app(arrived, start_response))


class S3Server:
    """A server with S3's API in this process, by moto."""

    port: int

    def __init__(self, _: Path) -> None:
        from moto.moto_server.werkzeug_app import (
            DomainDispatcherApplication,
            MotoRequestHandler,
            create_backend_app,
        )
        from werkzeug.serving import make_server

        self._server = make_server(
            "127.0.0.1",
            0,
            _OneConditionalPut(DomainDispatcherApplication(create_backend_app)),
            threaded=True,
            request_handler=MotoRequestHandler,
        )
        self._serving = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> S3Server:
        # It answers in threads of the tests.  Its log handler may write to the captured
        # output of a test that has ended; that error would replace the answer.
        logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
        self._serving.start()
        self.port = self._server.server_port
        # It accepts every signature, but wants to see one.
        headers = {"Authorization": f"AWS {ACCESS_KEY}:x"}
        _call(self.port, "PUT", f"/{BUCKET}", headers=headers)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._serving.join()
        self._server.server_close()

    def new_store(self, port: int | None = None) -> Store:
        return _s3_store(port or self.port)

    @contextmanager
    def checked_credentials(self) -> Iterator[None]:
        """Let the server check credentials; it knows none."""
        _call(self.port, "POST", "/moto-api/reset-auth", b"0")
        try:
            yield
        finally:
            _call(self.port, "POST", "/moto-api/reset-auth", b"inf")


class RedisServer:
    """A ``redis-server`` that writes nothing to its disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = free_port()

    def __enter__(self) -> RedisServer:
        program = required_program("redis-server", "redis-server")
        settings = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self._directory,
            "save": "",
            "requirepass": REDIS_PASSWORD,
        }
        given = [
            part for item in settings.items() for part in (f"--{item[0]}", item[1])
        ]
        self._process = _Process([program, *given], b"Ready to accept connections")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def new_store(self, port: int | None = None) -> Store:
        url = f"redis://127.0.0.1:{port or self.port}/{uuid4().hex}/objects"
        return url, {"password": REDIS_PASSWORD}


class VersityServer:
    """Versity's S3 gateway over a directory."""

    wrong: ClassVar = {"secret_access_key": WRONG_KEY}

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = free_port()

    def __enter__(self) -> VersityServer:
        (self._directory / BUCKET).mkdir()
        command = [_installed("bin/versitygw")]
        command += ["--access", ACCESS_KEY, "--secret", SECRET_KEY]
        command += ["--port", f"127.0.0.1:{self.port}", "posix", self._directory]
        self._process = _Process(command, b"http://127.0.0.1")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def new_store(self, port: int | None = None) -> Store:
        return _s3_store(port or self.port)


class AzureServer:
    """Azurite, with the API of Azure Blob Storage."""

    wrong: ClassVar = {"account_key": WRONG_KEY}

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = free_port()

    def __enter__(self) -> AzureServer:
        command = [_installed("node_modules/.bin/azurite-blob")]
        command += ["--blobHost", "127.0.0.1", "--blobPort", self.port]
        command += ["--location", self._directory]
        command += ["--skipApiVersionCheck", "--disableTelemetry"]
        accounts = f"{AZURE_ACCOUNT}:{AZURE_KEY}"
        self._process = _Process(
            command, b"successfully listens", AZURITE_ACCOUNTS=accounts
        )
        self._create_container()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def new_store(self, port: int | None = None) -> Store:
        options = {
            "endpoint": f"http://127.0.0.1:{port or self.port}/{AZURE_ACCOUNT}",
            "account_name": AZURE_ACCOUNT,
            "account_key": AZURE_KEY,
        }
        return f"azblob://{BUCKET}/{uuid4().hex}/objects", options

    def _create_container(self) -> None:
        signed = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        lines = ["PUT", *[""] * 11, *(f"{name}:{signed[name]}" for name in signed)]
        path = f"/{AZURE_ACCOUNT}/{BUCKET}"
        lines += [f"/{AZURE_ACCOUNT}{path}", "restype:container"]
        key, text = base64.b64decode(AZURE_KEY), "\n".join(lines).encode()
        signature = base64.b64encode(hmac.digest(key, text, hashlib.sha256)).decode()
        authorization = f"SharedKey {AZURE_ACCOUNT}:{signature}"
        headers = signed | {"Authorization": authorization}
        _call(self.port, "PUT", f"{path}?restype=container", headers=headers)


class GcsServer:
    """A server with the API of Google Cloud Storage; it has no multipart uploads."""

    def __init__(self, _: Path) -> None:
        self.port = free_port()

    def __enter__(self) -> GcsServer:
        host = f"127.0.0.1:{self.port}"
        command = [_installed("bin/fake-gcs-server"), "-scheme", "http"]
        command += ["-host", "127.0.0.1", "-port", self.port, "-backend", "memory"]
        command += ["-public-host", host, "-external-url", f"http://{host}"]
        self._process = _Process(command, b"server started")
        headers = {"Content-Type": "application/json"}
        data = f'{{"name": "{BUCKET}"}}'.encode()
        _call(self.port, "POST", "/storage/v1/b?project=test", data, headers)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def new_store(self, port: int | None = None) -> Store:
        options = {
            "endpoint": f"http://127.0.0.1:{port or self.port}",
            "allow_anonymous": "true",
            "disable_config_load": "true",
            "disable_vm_metadata": "true",
        }
        return f"gcs://{BUCKET}/{uuid4().hex}/objects", options


SERVERS = {
    "s3": S3Server,
    "redis": RedisServer,
    "versitygw": VersityServer,
    "azurite": AzureServer,
    "fake-gcs": GcsServer,
}
"""The classes of servers, by the name that tests give them."""


class StoreServers:
    """Servers that are started when a test first needs them."""

    def __init__(self, new_directory: Callable[[str], Path]) -> None:
        self._new_directory = new_directory
        self._running: dict[str, StoreServer] = {}
        self._opened = ExitStack()

    def __enter__(self) -> StoreServers:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def get(self, kind: str) -> StoreServer:
        """Return the running server of *kind*."""
        if kind not in self._running:
            server = SERVERS[kind](self._new_directory(kind))
            self._running[kind] = self._opened.enter_context(server)
        return self._running[kind]
