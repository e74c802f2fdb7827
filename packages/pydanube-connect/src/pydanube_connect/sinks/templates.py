"""The names and ids that messages get in other systems.  Pure."""

from __future__ import annotations

from enum import Enum

from pydanube.client.messages.messages import Message


class IdSource(Enum):
    """The origin of a message's id in another system."""

    MESSAGE = "message"
    """Its topic and offset: each message has its own id."""
    KEY = "key"
    """Its key: a message replaces the one with the same key."""


def render(template: str, message: Message) -> str:
    """
    Return the name of *message* in another system.

    ``{topic}`` stands for its topic without the namespace, and ``{key}`` for its key.
    """
    key = (message.key_bytes or b"").decode(errors="replace")
    return template.replace("{topic}", short_topic(message)).replace("{key}", key)


def short_topic(message: Message) -> str:
    """Return the name of the message's topic without its namespace."""
    return message.topic.rpartition("/")[2]
