"""Messages as entries of requests to AWS: what fits, and what does not.  Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydanube.client.messages.messages import Message
from pydanube_connect.sinks.templates import short_topic

ATTRIBUTES_MAX = 10
TEXT_BYTES_MAX = 1024 * 1024
GROUP_CHARACTERS_MAX = 128
PARTITION_KEY_CHARACTERS_MAX = 256

_NO_TEXT = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that queues and topics of AWS do not take, as XML does not."""
_NAME = re.compile(
    r"(?!(?i:aws|amazon)\.)(?!.*\.\.)[A-Za-z0-9_-](?:[A-Za-z0-9_.-]{0,254}[A-Za-z0-9_-])?"
)
_GROUP = re.compile(r"[!-~]{1,128}")


class NoEntry(Exception):
    """A message that AWS cannot get."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A message in a request."""

    number: int
    """Its index in the batch."""
    fields: dict[str, Any]
    byte_count: int


def text_of(message: Message) -> str:
    """
    Return the payload of *message* as a text.

    Raises:
        NoEntry: It is empty, too long, or no text.
    """
    if not message.payload:
        raise NoEntry("the payload is empty")
    if len(message.payload) > TEXT_BYTES_MAX:
        raise NoEntry(f"the payload has more than {TEXT_BYTES_MAX:,} bytes")
    try:
        text = message.payload.decode()
    except UnicodeDecodeError as error:
        raise NoEntry(f"the payload is not text: {error}") from error
    found = _NO_TEXT.search(text)
    if found is not None:
        raise NoEntry(f"the payload has the character {found[0]!r}")
    return text


def attributes_of(message: Message) -> dict[str, dict[str, str]]:
    """
    Return the attributes of *message* as those of queues and topics.

    Raises:
        NoEntry: They are too many, or one has another name or value.
    """
    if len(message.attributes) > ATTRIBUTES_MAX:
        raise NoEntry(
            f"the message has {len(message.attributes)} attributes, and at most "
            f"{ATTRIBUTES_MAX} are possible"
        )
    for name, value in message.attributes.items():
        if not _NAME.fullmatch(name):
            raise NoEntry(f"{name[:100]!r} cannot be the name of an attribute")
        if not value or _NO_TEXT.search(value):
            raise NoEntry(f"the value of the attribute {name!r} is empty or no text")
    return {
        name: {"DataType": "String", "StringValue": value}
        for name, value in message.attributes.items()
    }


def ordering_of(message: Message) -> dict[str, str]:
    """
    Return the fields for queues and topics that keep the order of each key.

    Raises:
        NoEntry: The key cannot name a group.
    """
    key = message.key_bytes
    group = short_topic(message) if key is None else key.decode(errors="replace")
    if not _GROUP.fullmatch(group):
        raise NoEntry(
            f"the key {group[:100]!r} is not 1 to {GROUP_CHARACTERS_MAX} letters, "
            "digits and punctuation marks of ASCII"
        )
    topic, offset = message.id
    digest = hashlib.sha256(f"{topic}:{offset}".encode()).hexdigest()
    return {"MessageGroupId": group, "MessageDeduplicationId": digest}


def partition_key_of(message: Message) -> str:
    """Return the partition key of *message*: messages with a key stay in order."""
    if not message.key_bytes:
        return str(message.offset)
    key = message.key_bytes.decode(errors="replace")
    if len(key) <= PARTITION_KEY_CHARACTERS_MAX:
        return key
    return hashlib.sha256(message.key_bytes).hexdigest()


def requests_of(
    entries: Iterable[Entry], *, count_max: int, bytes_max: int
) -> Iterator[list[Entry]]:
    """
    Yield *entries* for requests, each as large as possible.

    A request has one entry of each message group: AWS may take some entries and not
    others, and a later one of the group must not overtake one that is sent again.
    """
    found: list[Entry] = []
    groups = set[str]()
    size = 0
    for entry in entries:
        group = entry.fields.get("MessageGroupId")
        is_full = len(found) == count_max or size + entry.byte_count > bytes_max
        if found and (is_full or group in groups):
            yield found
            found, size = [], 0
            groups.clear()
        if group is not None:
            groups.add(group)
        found.append(entry)
        size += entry.byte_count
    if found:
        yield found


def size_of(message: Message) -> int:
    """Return the size of *message* as AWS counts it."""
    names = sum(
        len(name.encode()) + len(value.encode()) + len("String")
        for name, value in message.attributes.items()
    )
    return len(message.payload) + len(message.key_bytes or b"") + names
