"""Templates for the names that messages get in other systems.  Pure."""

from __future__ import annotations

from pydanube.client.messages import Message


def render(template: str, message: Message) -> str:
    """
    Return the name of *message* in another system.

    ``{topic}`` stands for its topic without the namespace, and ``{key}`` for its key.
    """
    name = message.topic.rpartition("/")[2]
    key = (message.key_bytes or b"").decode(errors="replace")
    return template.replace("{topic}", name).replace("{key}", key)
