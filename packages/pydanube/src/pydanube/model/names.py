"""
Names of topics, namespaces, subscriptions, subjects and clients.

Names are parsed when they arrive, so every ``TopicName`` is valid.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NewType

from pydanube.model.errors import InvalidName
from pydanube.model.lazy_dataclasses import dataclass

NAME_BYTES_MAX = 255
"""
The longest name, in bytes of UTF-8.

Namespaces and topics are directories of the object store, and file systems allow no
longer names.
"""

NamespaceName = NewType("NamespaceName", str)
SubscriptionName = NewType("SubscriptionName", str)

DEFAULT_NAMESPACE = NamespaceName("default")
SYSTEM_NAMESPACE = NamespaceName("system")

PARTITION_MARK = "-part-"
"""The text between a base name and the number of a partition."""

# As the broker writes it: no signs, no leading zeros, only ASCII digits.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")

# \w matches letters and digits of any script, and the underscore.
_WORD = re.compile(r"[\w-]+")
# No empty part: such names could be "." or "..", hidden files, or end with a dot.
_DOTTED = re.compile(r"[\w-]+(?:\.[\w-]+)*")

_SHOWN_MAX = 80


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """``/{namespace}/{topic}``."""

    namespace: NamespaceName
    topic: str

    @classmethod
    @lru_cache(maxsize=4096)
    def parse(cls, text: str) -> TopicName:
        """
        Return the topic that *text* names.

        Raises:
            InvalidName: *text* is not ``/namespace/topic`` with letters, digits, ``_``
                and ``-``, and in the topic also single dots between them, or a part has
                more than ``NAME_BYTES_MAX`` bytes.
        """
        parts = text.split("/")
        is_absolute = len(parts) == 3 and not parts[0]
        if is_absolute:
            _check_bytes("namespace", parts[1])
            _check_bytes("topic", parts[2])
        if not (
            is_absolute and _WORD.fullmatch(parts[1]) and _DOTTED.fullmatch(parts[2])
        ):
            raise InvalidName(
                f"The topic: {text} has an invalid format, should be: "
                "/namespace_name/topic_name (letters, digits, '_' and '-'; in "
                "topic_name also single dots between them)"
            )
        return cls(NamespaceName(parts[1]), parts[2])

    def partition(self, number: int) -> TopicName:
        """Return partition *number* of this base name, from 0; it may be too long."""
        return TopicName(self.namespace, f"{self.topic}{PARTITION_MARK}{number}")

    def split_partition(self) -> tuple[TopicName, int] | None:
        """Return base name and number if this is a partition, otherwise None."""
        base, mark, number = self.topic.rpartition(PARTITION_MARK)
        if not mark or not _NUMBER.fullmatch(number):
            return None
        if not base or base.endswith("."):
            # No topic has the name that is left.
            return None
        return TopicName(self.namespace, base), int(number)

    def __str__(self) -> str:
        return f"/{self.namespace}/{self.topic}"


def parse_namespace(text: str) -> NamespaceName:
    """
    Return the namespace that *text* names.

    Raises:
        InvalidName: *text* has other characters than letters, digits, ``_``, ``-``,
            or more than ``NAME_BYTES_MAX`` bytes.
    """
    _check_bytes("namespace", text)
    if not _WORD.fullmatch(text):
        raise InvalidName(
            f"The namespace {text!r} may hold only letters, digits, '_' and '-'"
        )
    return NamespaceName(text)


def parse_subscription(text: str) -> SubscriptionName:
    """
    Return the subscription that *text* names: any printable text without a slash.

    Raises:
        InvalidName: *text* is empty, too long, or has a slash or control characters.
    """
    return SubscriptionName(_printable("subscription", text))


def parse_subject(text: str) -> str:
    """Return the subject that *text* names, as for subscriptions."""
    return _printable("subject", text)


def parse_client_name(kind: str, text: str) -> str:
    """Return the name of a producer or consumer, as for subscriptions."""
    return _printable(kind, text)


def _printable(kind: str, text: str) -> str:
    if not text or "/" in text or not text.isprintable():
        raise InvalidName(
            f"The {kind} name {_shown(text)} must have printable characters and no "
            "slash"
        )
    _check_bytes(kind, text)
    return text


def _check_bytes(kind: str, name: str) -> None:
    # Python strings may contain surrogates, which UTF-8 cannot encode.
    byte_count = len(name.encode(errors="surrogatepass"))
    if byte_count > NAME_BYTES_MAX:
        raise InvalidName(
            f"The {kind} name {_shown(name)} has {byte_count} bytes in UTF-8; a name "
            f"has at most {NAME_BYTES_MAX}"
        )


def _shown(text: str) -> str:
    """Return *text* in quotes, shortened for an error message."""
    return repr(text) if len(text) <= _SHOWN_MAX else repr(text[:_SHOWN_MAX]) + "…"
