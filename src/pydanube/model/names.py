"""
Names, parsed once when they arrive.

A ``TopicName`` that exists is valid: there is no other way to have one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NewType

from pydanube.model.errors import InvalidName

NAME_BYTES_MAX = 255
"""
The most bytes of a name in UTF-8.

Namespaces and topics are directories of the object store, and no file system takes
longer names.
"""
STORED_CHARACTERS_MAX = 255
"""
The most characters of a topic's or namespace's name that exists.

Brokers before 0.2 counted characters when they created one.
"""

NamespaceName = NewType("NamespaceName", str)
SubscriptionName = NewType("SubscriptionName", str)

DEFAULT_NAMESPACE = NamespaceName("default")
SYSTEM_NAMESPACE = NamespaceName("system")

PARTITION_MARK = "-part-"
"""Between a base name and the number of a partition."""

# As it would be written by us: no signs, no leading zeros, no other scripts' digits.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")

# \w is: letters and digits of any script, and the underscore.
_WORD = re.compile(r"[\w-]+")

_SHOWN_MAX = 80


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """``/{namespace}/{topic}``."""

    namespace: NamespaceName
    topic: str

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """
        The topic that *text* names.

        Raises:
            InvalidName: *text* is not two words of letters, digits, ``_`` and
                ``-`` behind a slash each, or a word is longer than any that exists.
        """
        parts = text.split("/")
        if len(parts) != 3 or parts[0] or not all(map(_is_word, parts[1:])):
            raise InvalidName(
                f"The topic: {text} has an invalid format, should be: "
                "/namespace_name/topic_name (letters, digits, '_' and '-')"
            )
        return cls(NamespaceName(parts[1]), parts[2])

    def check_new(self) -> None:
        """
        Raise if no topic of this name may be created.

        Raises:
            InvalidName: The topic's name has more than ``NAME_BYTES_MAX`` bytes.
        """
        _check_bytes("topic", self.topic)

    def partition(self, number: int) -> TopicName:
        """The topic that is partition *number* of this base name, from 0."""
        return TopicName(self.namespace, f"{self.topic}{PARTITION_MARK}{number}")

    def split_partition(self) -> tuple[TopicName, int] | None:
        """The base name and the number, if this is the name of a partition."""
        base, mark, number = self.topic.rpartition(PARTITION_MARK)
        if not mark or not base or not _NUMBER.fullmatch(number):
            return None
        return TopicName(self.namespace, base), int(number)

    def __str__(self) -> str:
        return f"/{self.namespace}/{self.topic}"


def parse_namespace(text: str) -> NamespaceName:
    """
    The namespace that *text* names.

    Raises:
        InvalidName: *text* is not a word of letters, digits, ``_`` and ``-``.
    """
    if not _is_word(text):
        raise InvalidName(
            f"The namespace {text!r} may hold only letters, digits, '_' and '-'"
        )
    return NamespaceName(text)


def check_new_namespace(name: NamespaceName) -> None:
    """
    Raise if no namespace of this name may be created.

    Raises:
        InvalidName: It has more than ``NAME_BYTES_MAX`` bytes.
    """
    _check_bytes("namespace", name)


def parse_subscription(text: str) -> SubscriptionName:
    """
    The subscription that *text* names: any printable text without a slash.

    Raises:
        InvalidName: *text* is empty, too long, or holds a slash or controls.
    """
    return SubscriptionName(_printable("subscription", text))


def parse_subject(text: str) -> str:
    """The subject of the schema registry; the same rule as for subscriptions."""
    return _printable("subject", text)


def parse_client_name(kind: str, text: str) -> str:
    """The name of a producer or consumer; the same rule as for subscriptions."""
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
    # Text from Python may hold surrogates, which are not UTF-8.
    byte_count = len(name.encode(errors="surrogatepass"))
    if byte_count > NAME_BYTES_MAX:
        raise InvalidName(
            f"The {kind} name {_shown(name)} has {byte_count} bytes in UTF-8; a name "
            f"has at most {NAME_BYTES_MAX}"
        )


def _shown(text: str) -> str:
    """*text* in quotes, shortened for an error message."""
    return repr(text) if len(text) <= _SHOWN_MAX else repr(text[:_SHOWN_MAX]) + "…"


def _is_word(text: str) -> bool:
    return len(text) <= STORED_CHARACTERS_MAX and _WORD.fullmatch(text) is not None
