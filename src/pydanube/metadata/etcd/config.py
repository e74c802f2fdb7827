"""The settings of a metadata store in etcd."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from pydanube.model.errors import InvalidConfig
from pydanube.security.addresses import host_in_url

DEFAULT_PORT = 2379


class EtcdConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a metadata store in etcd."""

    endpoints: str = ""
    """The members of etcd, separated by commas, as http://HOST:PORT or, with TLS,
    https://HOST:PORT. The broker uses one of them at a time, and another one if that
    does not answer."""
    cluster_name: Annotated[str, Meta(pattern="^[A-Za-z0-9._-]{1,64}$")] = "danube"
    """The name of the cluster in etcd: all keys begin with /danube/NAME/."""
    user: str = ""
    """The user of etcd. Empty: no authentication, or by client certificate."""
    password: str = ""
    """The password of the user. Give it in the environment or in a file rather than
    here."""
    password_file: str = ""
    """A file with the password of the user. A line break at its end is ignored."""
    ca_file: str = ""
    """A PEM file with the certificates of authorities that may sign the certificates of
    etcd. Empty: those that gRPC trusts by default."""
    certificate_file: str = ""
    """A PEM file with the client certificate of the broker, if etcd requires one."""
    key_file: str = ""
    """A PEM file with the key of the client certificate."""
    session_ttl_s: Annotated[int, Meta(ge=1, le=600)] = 10
    """The time after which etcd ends the session of a broker that it has not heard of.
    A broker stops when it cannot reach etcd for that time.  When a broker was killed,
    its successor waits for that time."""
    timeout_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    """How long an operation may take, with attempts at all members, until it fails."""

    def __post_init__(self) -> None:
        endpoints = parse_endpoints(self.endpoints)
        if bool(self.certificate_file) != bool(self.key_file):
            raise InvalidConfig(
                "certificate_file and key_file: expected both or neither"
            )
        has_plain = any(not each.is_secure for each in endpoints)
        if has_plain and (self.ca_file or self.certificate_file):
            raise InvalidConfig(
                "endpoints: expected https:// for all endpoints, because ca_file or "
                f"certificate_file is set, got {self.endpoints!r}"
            )
        if self.password and self.password_file:
            raise InvalidConfig("password and password_file: expected only one of them")
        if self.user and not (self.password or self.password_file):
            raise InvalidConfig(
                f"password: expected the password of user {self.user!r}, or "
                "password_file"
            )
        if (self.password or self.password_file) and not self.user:
            raise InvalidConfig(
                "user: expected the name of a user, got a password only"
            )

    def read_password(self) -> str:
        """
        Return the password.

        Raises:
            InvalidConfig: Its file cannot be read.
        """
        if not self.password_file:
            return self.password
        return read_file(self.password_file, "password_file").decode().rstrip("\r\n")


class Endpoint(msgspec.Struct, frozen=True):
    """The address of a member of etcd."""

    address: str
    """HOST:PORT"""
    is_secure: bool

    def __str__(self) -> str:
        return f"{'https' if self.is_secure else 'http'}://{self.address}"


def parse_endpoints(text: str) -> tuple[Endpoint, ...]:
    """
    Return the endpoints in *text*, separated by commas.

    Raises:
        InvalidConfig: One of them is not an address.
    """
    return tuple(_parse(part.strip()) for part in text.split(",") if part.strip())


def _parse(text: str) -> Endpoint:
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError:
        parts, host, port = urlsplit(""), None, 0
    is_whole = not (parts.path.strip("/") or parts.query or parts.username)
    if parts.scheme not in {"http", "https"} or not host or not is_whole:
        raise InvalidConfig(
            "endpoints: expected http://HOST:PORT or https://HOST:PORT, separated by "
            f"commas, got {text!r}"
        )
    return Endpoint(f"{host_in_url(host)}:{port}", parts.scheme == "https")


def read_file(path: str, setting: str) -> bytes:
    """
    Return the content of the file *path*.

    Raises:
        InvalidConfig: It cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidConfig(
            f"metadata.etcd.{setting}: {path} cannot be read: {error.strerror}"
        ) from error
