"""
Names, parsed once at the door.

A ``TopicName`` that exists is valid: there is no other way to have one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NewType

from pydanube.model.errors import InvalidName

NAME_LENGTH_MAX = 255

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
                ``-`` behind a slash each, or a word is longer than 255.
        """
        parts = text.split("/")
        if len(parts) != 3 or parts[0] or not all(map(_is_word, parts[1:])):
            raise InvalidName(
                f"The topic: {text} has an invalid format, should be: "
                "/namespace_name/topic_name (letters, digits, '_' and '-')"
            )
        return cls(NamespaceName(parts[1]), parts[2])

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
    if not 0 < len(text) <= NAME_LENGTH_MAX or "/" in text or not text.isprintable():
        raise InvalidName(
            f"The {kind} name {text!r} must have 1 to {NAME_LENGTH_MAX} printable "
            "characters and no slash"
        )
    return text


def _is_word(text: str) -> bool:
    return len(text) <= NAME_LENGTH_MAX and _WORD.fullmatch(text) is not None
