"""
Damaged data directories: the broker serves the published messages or refuses to start.

A round damages a copy of a directory with known contents, starts a broker on it in this
process and reads everything.  The messages must be those that were published, and no
offset may be assigned twice.  If the broker refuses to start, the error must name a
part of the directory, and after ``danube recover`` a broker must serve the rest.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydanube import BrokerError
from pydanube.model.errors import OffsetDropped, TimedOut
from pydanube.wire.files.segment_format import object_prefix, parse_object_name
from pydanube_broker.servers.directories.directory import hold_directory
from pydanube_broker.servers.recovery.recover import recover_directory
from pydanube_broker.storage.config import StorageConfig
from support.fakes.directories import (
    change_metadata,
    copied,
    first_error,
    publish,
    serving,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from random import Random

    from attack.target import Target

TEST_ROUNDS = 2
ROUND_TIMEOUT_S = 120.0
RECEIVE_TIMEOUT_S = 30.0
SEALED = "/default/sealed"
MIXED = "/default/mixed"
PARTITION = "/default/split-part-0"
GONE = "/default/gone"
TOPICS = (SEALED, MIXED, PARTITION)
PARTS = ("journal", "metadata", "objects")
SETTINGS = {"storage__seal_bytes": 1, "storage__seal_interval_s": 0.01}
"""Each batch becomes a segment at once."""


@dataclass(frozen=True)
class Original:
    """The undamaged directory: an older copy, the last one, and its messages."""

    old: Path
    new: Path
    messages: dict[str, dict[int, bytes]]


async def attack(target: Target, rng: Random) -> None:
    """Damage a copy of the directory in one or two places and start a broker."""
    original = await _original(target)
    data = target.directory / "data"
    shutil.copytree(original.new, data)
    damages = [
        rng.choice(DAMAGES)(data, original, rng)
        for _ in range(rng.choice((1, 1, 1, 2)))
    ]
    # Metadata and journal record each other's progress.  Without the metadata, or with
    # metadata of the same age, nothing shows that a journal is older, so its offsets
    # are assigned again.
    is_journal_older = any("older" in each and "journal" in each for each in damages)
    if is_journal_older and any("metadata" in each for each in damages):
        return
    try:
        async with asyncio.timeout(ROUND_TIMEOUT_S):
            await check_damaged(data, original)
    except (AssertionError, TimeoutError) as finding:
        raise AssertionError(f"after {damages}: {finding!r}") from finding


async def check_damaged(data: Path, original: Original) -> str:
    """
    Start a broker on the damaged directory *data* and compare it with *original*.

    Return whether it ``served``, or how it was recovered.
    """
    with quiet():
        if await _serves(data, original, after_recovery=False):
            return "served"
        try:
            with hold_directory(data) as directory:
                findings = await recover_directory(
                    directory,
                    StorageConfig(),
                    from_segments=True,
                    accept_loss=True,
                    write=True,
                )
        except (BrokerError, OSError) as error:
            _check_reason(error, data)
            return "refused"
        # Without the metadata, nothing shows that there was an object before the first
        # one; the report says where each topic begins.
        bases = {
            each.topic: each.begin
            for each in findings.topics
            if findings.needs_from_segments
            and _first_offset_of_objects(data, each.topic) in (each.base, None)
        }
        if not await _serves(data, original, after_recovery=True, bases=bases):
            return "refused"
        return "recovered" if findings.written else "whole"


def _first_offset_of_objects(data: Path, topic: str) -> int | None:
    directory = data / "objects" / object_prefix("", topic)
    found = [parse_object_name(each.name) for each in directory.glob("*")]
    return min((each.base for each in found if each is not None), default=None)


async def _serves(
    data: Path,
    original: Original,
    *,
    after_recovery: bool,
    bases: Mapping[str, int] | None = None,
) -> bool:
    """
    Return whether a broker starts on *data*; check the messages that it serves.

    *bases* are the offsets at which topics begin as far as the recovery has reported.
    """
    try:
        async with serving(data) as client:
            for topic in TOPICS:
                base = (bases or {}).get(topic, 0)
                await _check_topic(client, topic, original, base=base)
            names = await client.topics.list()
            assert GONE not in names or after_recovery, "a deleted topic is back"
    except AssertionError:
        raise
    except (BrokerError, OSError, BaseExceptionGroup) as group:
        error = first_error(group)
        if isinstance(error, AssertionError):
            raise error from group
        _check_reason(error, data)
        return False
    return True


async def _check_topic(client, topic: str, original: Original, *, base: int) -> None:
    """Read the topic from its beginning to a message that is published now."""
    expected = original.messages[topic]
    try:
        (offset,) = await publish(client, topic, b"next")
    except TimedOut as error:
        raise AssertionError(f"{topic}: a publisher hangs") from error
    except BrokerError:
        return
    assert offset not in expected, f"{topic}: offset {offset} was assigned twice"
    found: dict[int, bytes] = {}
    was_reported = False
    for _ in range(5):
        try:
            async with client.consumer(
                topic, subscription="damage", start="earliest"
            ) as consumer:
                while offset not in found:
                    message = await consumer.receive(timeout_s=RECEIVE_TIMEOUT_S)
                    found[message.id.offset] = message.payload
                    await consumer.ack(message)
            break
        except OffsetDropped:
            was_reported = True
        except TimedOut as error:
            raise AssertionError(f"{topic}: a reader hangs after {found}") from error
        except BrokerError:
            was_reported = True
            break
    found.pop(offset, None)
    wrong = {
        at: payload for at, payload in found.items() if expected.get(at) != payload
    }
    assert not wrong, f"{topic}: read {wrong}, published {expected}"
    missing = {at for at in expected.keys() - found.keys() if at >= base}
    assert not missing or was_reported, (
        f"{topic}: {missing} are missing without an error"
    )


def _check_reason(error: BaseException, data: Path) -> None:
    """The error is one of ours or of the system, and names a part or a file."""
    assert isinstance(error, (BrokerError, OSError)), f"a bug: {error!r}"
    text = str(error)
    assert any(part in text for part in (*PARTS, "LOCK", "segment", str(data))), text


# The damages.  Each function returns a description of what it did.


def _files(data: Path, *parts: str) -> list[Path]:
    return sorted(
        path
        for path in data.rglob("*")
        if path.is_file() and str(path.relative_to(data)).startswith(parts or PARTS)
    )


def _some_file(data: Path, rng: Random, *parts: str) -> Path:
    return rng.choice(_files(data, *parts) or [data / "LOCK"])


def truncate(data: Path, _original: Original, rng: Random) -> str:
    """Truncate a file."""
    path = _some_file(data, rng)
    size = rng.randrange(path.stat().st_size + 1)
    cut(path, size)
    return f"truncate {path.name} to {size}"


def cut(path: Path, size: int) -> None:
    """Keep only the first *size* bytes of a file."""
    with path.open("r+b") as file:
        file.truncate(size)


def flip(data: Path, _original: Original, rng: Random) -> str:
    """Flip a bit of the journal or a segment."""
    # SQLite has no checksums, so a bit there may go unnoticed.
    path = _some_file(data, rng, "journal", "objects")
    content = bytearray(path.read_bytes())
    if not content:
        return f"{path.name} is empty"
    at = rng.randrange(len(content))
    content[at] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    return f"flip a bit of {path.name} at {at}"


def remove(data: Path, _original: Original, rng: Random) -> str:
    """Remove a file."""
    path = _some_file(data, rng)
    path.unlink()
    return f"remove {path.name}"


def empty(data: Path, _original: Original, rng: Random) -> str:
    """Empty a file."""
    path = _some_file(data, rng)
    cut(path, 0)
    return f"empty {path.name}"


def make_older(data: Path, original: Original, rng: Random) -> str:
    """Replace a file by an older copy."""
    path = _some_file(data, rng)
    older = original.old / path.relative_to(data)
    if older.is_file():
        shutil.copy(older, path)
    return f"older {path.name}"


def make_part_older(data: Path, original: Original, rng: Random) -> str:
    """Replace a whole part by an older copy."""
    part = rng.choice(PARTS)
    remove_part(data, part)
    for path in original.old.glob(f"{part}*"):
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, data / path.name)
    return f"older {part}"


def remove_whole_part(data: Path, _original: Original, rng: Random) -> str:
    """Remove a whole part."""
    part = rng.choice(PARTS)
    remove_part(data, part)
    return f"remove all of {part}"


def remove_part(data: Path, part: str) -> None:
    """Remove everything of one part."""
    for path in data.glob(f"{part}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def add_garbage(data: Path, _original: Original, rng: Random) -> str:
    """Add a file that does not belong there."""
    place = rng.choice(("", "journal", "objects", "objects/default", "staging"))
    suffix = rng.choice(("", ".journal", ".parquet", ".part", ".tmp"))
    name = f"{rng.randrange(10**20):020d}{suffix}"
    (data / place).mkdir(parents=True, exist_ok=True)
    (data / place / name).write_bytes(rng.randbytes(rng.choice((0, 10, 5000))))
    return f"garbage {place}/{name}"


def make_directory(data: Path, _original: Original, rng: Random) -> str:
    """Replace a file by a directory."""
    path = _some_file(data, rng)
    path.unlink()
    path.mkdir()
    return f"a directory instead of {path.name}"


DAMAGES: tuple[Callable[[Path, Original, Random], str], ...] = (
    truncate,
    flip,
    remove,
    empty,
    make_older,
    make_part_older,
    remove_whole_part,
    add_garbage,
    make_directory,
)


# The directory.


_made: dict[Target, Original] = {}


async def _original(target: Target) -> Original:
    """Return the directory whose copies all rounds with *target* damage."""
    if target not in _made:
        with quiet():
            _made[target] = await make_original(target.directory)
    return _made[target]


async def make_original(place: Path) -> Original:
    """Make a directory with segments, other messages, cursors and a deleted topic."""
    data = place / "data"
    messages: dict[str, dict[int, bytes]] = {topic: {} for topic in TOPICS}

    async def add(client, topic: str, *payloads: bytes) -> None:
        offsets = await publish(client, topic, *payloads)
        messages.get(topic, {}).update(zip(offsets, payloads, strict=True))

    async with serving(data, **SETTINGS) as client:
        await client.topics.create(PARTITION)
        for topic in (*TOPICS, GONE):
            await add(
                client, topic, *(b"%s %d" % (topic.encode(), n) for n in range(4))
            )
        for topic in TOPICS:
            # There is no notification of sealing.
            while (await client.topics.describe(topic)).sealed_offset != 4:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    old = copied(data, "old")
    async with serving(data) as client:
        await add(client, MIXED, *(b"late %d" % n for n in range(5)))
        await add(client, PARTITION, b"late")
        async with client.consumer(
            MIXED, subscription="half", start="earliest"
        ) as consumer:
            for _ in range(2):
                await consumer.ack(await consumer.receive(timeout_s=RECEIVE_TIMEOUT_S))
            await consumer.flush()
    # The broker was interrupted after it had recorded that the topic is deleted.
    store = sqlite3.connect(data / "metadata.sqlite")
    (record,) = store.execute(
        "SELECT value FROM entries WHERE path = '/topics/default/gone'"
    ).fetchone()
    store.close()
    topic_id = json.loads(record)["topic_id"]
    change_metadata(
        data,
        "DELETE FROM entries WHERE path = '/topics/default/gone'",
        f"""INSERT INTO entries VALUES ('/deleted-topics/default/gone',
            CAST('{{"topic_id": {topic_id}, "deleted_at": 0}}' AS BLOB), 1)""",
    )
    return Original(old, data, messages)


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the log of brokers on damaged directories."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
