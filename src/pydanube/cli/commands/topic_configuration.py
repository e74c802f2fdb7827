"""`danube topics configure` and `edit`: change the settings of an existing topic."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from pydanube.cli import parameters
from pydanube.cli.commands.subscriptions import partitions_of
from pydanube.cli.declaration import Connect
from pydanube.cli.output import Columns, Result, Table, print_note
from pydanube.client.changes import changes_of
from pydanube.model.descriptions import TopicDescription, TopicSettings
from pydanube.model.errors import BrokerError, Conflict, InvalidRequest
from pydanube.model.topic_settings import (
    Document,
    changes_between,
    document_of,
    document_of_pairs,
    summarize,
    with_document,
)
from pydanube.sync import Client

HEADER = """\
# The settings of {topic} that can change. Edit the values, save, and leave the editor.
# A setting that is not here does not change; the file as it is changes nothing.
# retention and limits: "inherit" stands for those of the namespace, as in
#   retention: inherit
# and a topic can have its own, as in
#   retention: {{age: 7d, size: 10GiB, acknowledged: false}}
#   limits: {{max_publish_rate: 1000}}
# schema: "none", or as in
#   schema: {{subject: orders, policy: enforce, validate_payload: true}}
"""

DOCUMENT_BYTES_MAX = 1024 * 1024
"""A larger document is refused before it fills the memory."""


def configure(
    connect: Connect,
    topic: parameters.Topic,
    *,
    settings: list[str],
    dry_run: bool = False,
) -> Result:
    """
    Change settings of a topic, and show the old and the new values.

    The settings are on_corruption, retention.age, retention.size,
    retention.acknowledged, sealing.size, sealing.age, deduplication.age,
    deduplication.messages, the names of limits as in limits.max_publish_rate, and
    schema.subject, schema.policy, schema.validate_payload, schema.version and
    schema.min_version. retention=inherit and limits=inherit let those of the namespace
    apply, deduplication=none ends it, and schema=none removes the binding; a topic that
    gets a retention or limits of its own begins with those of its namespace. Settings
    that are not named do not change. All changes are made together, or none of them.
    For a partitioned topic, they apply to each partition.

    Args:
        settings (--set NAME=VALUE): A setting, such as retention.age=7d; repeat it for
            more.
        dry_run: Only show what would change.
    """
    document = document_of_pairs(settings)
    with connect() as client:
        described = _described(client, topic)
        new = with_document(described, document)
        return _changed(client, topic, described, new, dry_run=dry_run)


def edit(
    connect: Connect,
    topic: parameters.Topic,
    *,
    file: Path | None = None,
    dry_run: bool = False,
) -> Result:
    """
    Change settings of a topic in an editor.

    The command opens the program that the variable VISUAL or EDITOR names, by default
    vi, on a YAML document of the settings, and applies the changes when the editor
    ends. If the document is invalid, or the topic has changed in the meantime, nothing
    is changed, and the document is kept. "danube topics configure" changes single
    settings, and describes all of them.

    Args:
        file (-f FILE): Apply this document instead of opening an editor; - is standard
            input.
        dry_run: Only show what would change.
    """
    with connect() as client:
        described = _described(client, topic)
    if file is None:
        path = _edited(topic, described)
        text = _read(path)
    else:
        path = file
        text = (
            sys.stdin.read(DOCUMENT_BYTES_MAX + 1) if str(file) == "-" else _read(file)
        )
    try:
        new = with_document(described, _parse_yaml(text))
        with connect() as client:
            if _described(client, topic).settings != described.settings:
                raise Conflict(f"the settings of {topic} changed in the meantime")
            result = _changed(client, topic, described, new, dry_run=dry_run)
    except BrokerError:
        if file is None:
            print_note(
                "Nothing is lost: correct your document, and apply it with "
                f"'danube topics edit {topic} --file {path}'."
            )
        raise
    if file is None:
        path.unlink(missing_ok=True)
    return result


def _described(client: Client, topic: str) -> TopicDescription:
    """Return the description of *topic*, or of its first partition."""
    return client.describe_topic(partitions_of(client, topic)[0])


def _document(described: TopicDescription, settings: TopicSettings) -> Document:
    return document_of(settings, is_reliable=described.policy.is_reliable)


def _changed(
    client: Client,
    topic: str,
    described: TopicDescription,
    new: TopicSettings,
    *,
    dry_run: bool,
) -> Result:
    """Change the settings of *topic* to *new*, and return the changes."""
    old = described.settings
    changes = changes_between(_document(described, old), _document(described, new))
    value = {"topic": topic, "changes": changes, "dry_run": dry_run}
    if not changes:
        return Result(value, f"{topic} has these settings already.")
    if not dry_run:
        client.topics.configure(topic, **changes_of(old, new))
    said = f"{topic} would change:" if dry_run else f"{topic} has changed:"
    return Result(value, said, Table.of(changes, CHANGE))


def _edited(topic: str, described: TopicDescription) -> Path:
    """
    Return the file with the settings of *topic* after the user has edited it.

    Raises:
        InvalidRequest: The editor cannot be started, or failed.
    """
    # Both take milliseconds, which other commands save.
    import tempfile  # noqa: PLC0415

    import yaml  # noqa: PLC0415

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    document = _document(described, described.settings)
    text = HEADER.format(topic=topic) + yaml.safe_dump(document, sort_keys=False)
    descriptor, name = tempfile.mkstemp(prefix="danube-topic-", suffix=".yaml")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    path = Path(name)
    try:
        done = subprocess.run(  # noqa: S603  # The user's own editor.
            [*shlex.split(editor), name], check=False
        )
    except (OSError, ValueError) as error:
        path.unlink(missing_ok=True)
        raise InvalidRequest(
            f"the editor {editor!r} cannot be started ({error}); set the variable "
            "EDITOR, or use 'danube topics configure'"
        ) from None
    if done.returncode != 0:
        path.unlink(missing_ok=True)
        raise InvalidRequest(
            f"the editor {editor!r} ended with code {done.returncode}; nothing is "
            "changed"
        )
    return path


def _read(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(DOCUMENT_BYTES_MAX + 1)


def _parse_yaml(text: str) -> Any:
    """
    Return the document in *text*.

    Raises:
        InvalidRequest: It is too large, or not YAML.
    """
    import yaml  # noqa: PLC0415  # Takes 15 ms, which other commands save.

    if len(text) > DOCUMENT_BYTES_MAX:
        raise InvalidRequest(f"the document is larger than {DOCUMENT_BYTES_MAX} bytes")
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidRequest(f"the document is not YAML: {error}") from None
    # Only comments are left: nothing changes.
    return {} if document is None else document


CHANGE: Columns = {
    "Setting": "setting",
    "Old": lambda change: summarize(change.old),
    "New": lambda change: summarize(change.new),
}
