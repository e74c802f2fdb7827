"""
The seam for metadata stores in services, such as etcd, which are plug-ins.

A store is declared by one class, which has its settings and opens it.  The promises of
a store are tests: ``tests/conformance/test_metadata.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec
from msgspec import Meta

from pydanube.model.errors import InvalidConfig

if TYPE_CHECKING:
    from pydanube_broker.metadata.store import SharedStore


class RemoteStoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a metadata store that several brokers can share."""

    KIND: ClassVar[str]
    """The value of metadata.kind, and the name of this group of settings."""
    SERVICE: ClassVar[str]
    """The name of the service, for messages."""
    EXAMPLE: ClassVar[str]
    """An example of ``endpoints``."""

    endpoints: str = ""
    """The members of the service."""
    cluster_name: Annotated[str, Meta(pattern="^[A-Za-z0-9._-]{1,64}$")] = "danube"
    """The name of the cluster: everything of it is below /danube/NAME/."""
    user: str = ""
    """The user. Empty: no authentication, or by client certificate."""
    password: str = ""
    """The password of the user. Give it in the environment or in a file rather than
    here."""
    password_file: str = ""
    """A file with the password of the user. A line break at its end is ignored."""
    ca_file: str = ""
    """A PEM file with the certificates of authorities that may sign the certificates of
    the members. Empty: those that the system or gRPC trusts by default."""
    certificate_file: str = ""
    """A PEM file with the client certificate of the broker, if the members require
    one."""
    key_file: str = ""
    """A PEM file with the key of the client certificate."""
    session_ttl_s: Annotated[int, Meta(ge=1, le=600)] = 10
    """The time after which the session of a broker ends that was not heard of. A broker
    stops when it cannot reach the members for that time.  When a broker was killed, its
    successor waits for that time."""
    timeout_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    """How long an operation may take, with attempts at all members, until it fails."""

    def __post_init__(self) -> None:
        if bool(self.certificate_file) != bool(self.key_file):
            raise InvalidConfig(
                "certificate_file and key_file: expected both or neither"
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

    @abstractmethod
    def open_store(self) -> AbstractAsyncContextManager[SharedStore]:
        """
        Open the store.

        Raises:
            MissingExtra: The packages for the service are not installed.
        """

    @property
    def location(self) -> str:
        """The service and the cluster, for messages."""
        return f"{self.SERVICE}, cluster {self.cluster_name!r}"

    def setting(self, name: str) -> str:
        """Return the whole name of a setting of this group, for messages."""
        return f"metadata.{self.KIND}.{name}"

    def missing_endpoints(self) -> InvalidConfig:
        """Return the error for settings without endpoints."""
        return InvalidConfig(
            f"{self.setting('endpoints')}: expected the members of {self.SERVICE}, "
            f"for example {self.EXAMPLE}, got nothing"
        )

    def read_password(self) -> str:
        """
        Return the password.

        Raises:
            InvalidConfig: Its file cannot be read.
        """
        if not self.password_file:
            return self.password
        return self.read_file("password_file").decode().rstrip("\r\n")

    def read_file(self, setting: str) -> bytes:
        """
        Return the content of the file that *setting* names.

        Raises:
            InvalidConfig: It cannot be read.
        """
        path: str = getattr(self, setting)
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise InvalidConfig(
                f"{self.setting(setting)}: {path} cannot be read: {error.strerror}"
            ) from error
