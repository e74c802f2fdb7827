"""
OpenDAL's errors as failures without secrets.

The text of such an error contains the whole request and answer: URLs with signatures,
and the strings that the store expected to be signed.  Only what is known to be harmless
is taken from it: the kind, the status, and the code and message of the store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.redaction import mask

_MESSAGE_MAX = 300
"""The most characters that are taken from a message."""

_STATUS = re.compile(r"\bstatus: (\d{3})\b")
_CODE = re.compile(r'\bcode: "?([\w.-]+)')
_MESSAGE = re.compile(r'\bmessage: "((?:[^"\\]|\\.)*)"')
_QUERY = re.compile(r"\?[^\s)\"']*")


class FailureKind(Enum):
    """The reason why a request failed; the value is a remedy for operators."""

    ABSENT = "check the name"
    EXISTS = "use another name"
    RANGE = "read within the object"
    CONTENTION = "repeat the request later"
    REFUSED = "check the credentials, and what they permit"
    NO_STORE = "create the bucket or container, or correct the URL of the store"
    MISCONFIGURED = "check the URL and the options of the store"
    UNSUPPORTED = "use another store"
    TIMEOUT = "check the network and the store, or allow more time"
    UNREACHABLE = "check the network and the store"


_KINDS = {
    "NotFound": FailureKind.ABSENT,
    "AlreadyExists": FailureKind.EXISTS,
    "ConditionNotMatch": FailureKind.EXISTS,
    "RangeNotSatisfied": FailureKind.RANGE,
    "Conflict": FailureKind.CONTENTION,
    "RateLimited": FailureKind.CONTENTION,
    "PermissionDenied": FailureKind.REFUSED,
    "ConfigInvalid": FailureKind.MISCONFIGURED,
    "Unsupported": FailureKind.UNSUPPORTED,
}
"""The meaning of OpenDAL's classes of errors; others mean that no answer came."""

_NO_STORE = {"NoSuchBucket", "ContainerNotFound", "FilesystemNotFound"}
"""The codes of stores that do not exist."""

_NO_UPLOAD = "NoSuchUpload"
"""The code of a repeated request to finish an upload that may have succeeded."""

_RANGE_STATUS = "416"

_SHORT = ("reader got too little data", "header content range is invalid")
"""How OpenDAL begins to say that an object ends within or before a range."""


@dataclass(frozen=True, slots=True)
class StoreFailure:
    """Why a request failed."""

    kind: FailureKind
    message: str

    def __str__(self) -> str:
        return f"{self.message}; {self.kind.value}"


def failure_of(error: Exception, secrets: Iterable[str] = ()) -> StoreFailure:
    """Return the meaning of OpenDAL's *error*, without *secrets*."""
    text = str(error)
    head, _, details = text.partition("\n\nContext:")
    _, _, message = head.partition(" => ")
    code = _CODE.search(message)
    if code is not None:
        said = _MESSAGE.search(message)
        message = code[1] + (f": {_first_line(said[1])}" if said else "")
    else:
        # What follows a brace or a tag is the raw answer.
        message = re.split(r"[{<]", _first_line(message))[0].strip()
        source = details.partition("\n\nSource:\n")[2].strip()
        if source:
            cause = re.split(r"[{<]", _first_line(source))[0].strip()
            message = f"{message}: {cause}" if message else cause
    status = _STATUS.search(details)
    if status is not None:
        message = f"{message} (HTTP {status[1]})" if message else f"HTTP {status[1]}"
    if status is not None and status[1] == _RANGE_STATUS:
        kind = FailureKind.RANGE
    else:
        kind = _kind_of(type(error).__name__, code[1] if code else "", text, message)
    message = mask(_QUERY.sub("", message), secrets)[:_MESSAGE_MAX]
    return StoreFailure(kind, message or type(error).__name__)


def _kind_of(name: str, code: str, text: str, message: str) -> FailureKind:
    if code in _NO_STORE:
        return FailureKind.NO_STORE
    if "timeout reached" in text.partition("\n")[0]:
        return FailureKind.TIMEOUT
    if code == _NO_UPLOAD:
        return FailureKind.UNREACHABLE
    if message.startswith(_SHORT):
        return FailureKind.RANGE
    if "authentication failed" in message or "credential" in message:
        return FailureKind.REFUSED
    return _KINDS.get(name, FailureKind.UNREACHABLE)


def _first_line(text: str) -> str:
    # Debug output of Rust escapes line breaks.
    return text.partition("\n")[0].partition("\\n")[0].strip()
