"""The names of files of messages: topic, partition and offsets.  Pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from pydanube.client.messages.messages import Message
from pydanube_connect.sinks.pure.message_templates import fill, template_problem

OFFSET_DIGITS = 20
STEP_BYTES_MAX = 255
"""The maximum length of a part of a path, in file systems."""
NOTHING = "__HIVE_DEFAULT_PARTITION__"
"""The partition of messages without a value, as in tables of Hive and Spark."""

_NAME = re.compile(rf"[0-9]{{{OFFSET_DIGITS}}}-([0-9]{{{OFFSET_DIGITS}}})(?:\.[a-z]+)+")
_PLACE = re.compile(r"\{[^{}]*\}")
_ESCAPED = re.compile(rb"[^A-Za-z0-9_.@+, -]")


class InvalidPartition(Exception):
    """A message whose partition cannot be a path."""


def partition_problem(template: str) -> str | None:
    """Return what is wrong with the template of a partition, or None."""
    if any("/" in place for place in _PLACE.findall(template)):
        return "a slash is between places, as in {time:%Y}/{time:%m}, not inside"
    steps = template.split("/")
    if any(each.strip(" .") == "" for each in steps):
        return f"{template!r} is not a path such as day={{time:%Y-%m-%d}}"
    return template_problem(template)


def partition_of(template: str, message: Message) -> str:
    """
    Return the partition of *message*: a path that is inside of its directory.

    Raises:
        InvalidPartition: A part of it is too long.
    """
    path = fill(template, message, _escape)
    for step in PurePosixPath(path).parts:
        if len(step.encode()) > STEP_BYTES_MAX:
            raise InvalidPartition(
                f"its partition has a part of more than {STEP_BYTES_MAX} bytes: "
                f"{step[:50]}…"
            )
    return path


def _escape(text: str) -> str:
    """Return *text* as a part of a path, as Hive and Spark do."""
    if not text:
        return NOTHING
    if not text.strip("."):
        return text.replace(".", "%2E")
    octets = _ESCAPED.sub(lambda found: b"%%%02X" % found[0][0], text.encode())
    return octets.decode()


def directory_of(topic: str, partition: str) -> str:
    """Return the beginning of the names of the files of *topic*."""
    directory = f"{topic.lstrip('/')}/"
    return f"{directory}{partition}/" if partition else directory


def name_of(directory: str, first: int, last: int, suffix: str) -> str:
    """Return the name of the file with the offsets *first* to *last*."""
    offsets = f"{first:0{OFFSET_DIGITS}}-{last:0{OFFSET_DIGITS}}"
    return f"{directory}{offsets}.{suffix}"


def last_offset_of(directory: str, name: str) -> int:
    """Return the last offset in the file *name*; -1: it is not one of *directory*."""
    found = _NAME.fullmatch(name.removeprefix(directory))
    return -1 if found is None else int(found[1])
