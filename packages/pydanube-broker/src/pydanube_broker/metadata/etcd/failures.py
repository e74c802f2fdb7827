"""
The meaning of failed calls to etcd.

etcd says why a call failed in a status code of gRPC and a text.  The texts are a part
of its interface: its own client compares them.
"""

from __future__ import annotations

from collections.abc import Callable

from pydanube.model.errors import (
    BrokerError,
    InvalidConfig,
    MetadataUnavailable,
    TransactionTooLarge,
)


class NoAnswer(Exception):
    """
    A member did not answer, or cannot execute requests now.

    It may have executed the request, or may do so later.
    """


class StaleToken(Exception):
    """The token of the user has expired; the request was not executed."""


class LeaseNotFound(Exception):
    """A lease has expired; the request was not executed."""


class Compacted(Exception):
    """etcd does not have the requested revision any more."""


class AnswerTooLarge(Exception):
    """The answer is larger than the client accepts."""


_NO_ANSWER = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "INTERNAL"}


def failure_of(code: str, details: str) -> Exception:
    """Return the exception for a call that failed with this status of gRPC."""
    for text, error in _BY_TEXT.items():
        if text in details:
            return error(details)
    if code == "RESOURCE_EXHAUSTED":
        # The client's own limit has another first letter than the server's.
        if details.startswith(("CLIENT: ", "Received message")):
            return AnswerTooLarge(details)
        return TransactionTooLarge(_too_large(details))
    if code in _NO_ANSWER:
        return NoAnswer(details or code)
    return MetadataUnavailable(f"etcd refuses a request: {details or code}")


def _too_large(details: str) -> str:
    return (
        "a change of metadata is too large for etcd: divide it, or raise the limits of "
        f"etcd (--max-txn-ops, --max-request-bytes): {details}"
    )


def _full(details: str) -> BrokerError:
    return MetadataUnavailable(
        "the database of etcd is full: compact and defragment it, or raise "
        f"--quota-backend-bytes, and then run 'etcdctl alarm disarm': {details}"
    )


def _denied(details: str) -> BrokerError:
    return MetadataUnavailable(
        "the user of metadata.etcd.user may not use the keys of the cluster; grant it "
        "read and write permission for the prefix /danube/NAME/, with the name in "
        f"metadata.etcd.cluster_name: {details}"
    )


def _wrong_password(details: str) -> BrokerError:
    return InvalidConfig(
        "etcd refuses the user or the password; see metadata.etcd.user and "
        f"metadata.etcd.password: {details}"
    )


def _no_user(details: str) -> BrokerError:
    return InvalidConfig(
        f"etcd requires a user; set metadata.etcd.user and a password: {details}"
    )


_BY_TEXT: dict[str, Callable[[str], Exception]] = {
    "invalid auth token": StaleToken,
    "revision of auth store is old": StaleToken,
    "lease not found": LeaseNotFound,
    "required revision has been compacted": Compacted,
    "too many operations": lambda details: TransactionTooLarge(_too_large(details)),
    "request is too large": lambda details: TransactionTooLarge(_too_large(details)),
    "database space exceeded": _full,
    "permission denied": _denied,
    "invalid user ID or password": _wrong_password,
    "user name is empty": _no_user,
    "too many requests": NoAnswer,
}
