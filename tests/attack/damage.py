"""
Damaged data directories: the broker serves the truth, or refuses and says why.

A round takes a copy of a directory with known contents, damages it, starts a broker
on it in this process and reads everything back.  What is read must be what was
published, and no offset may be given out twice.  If the broker refuses, the error has
to name a part of the directory, and ``danube recover`` has to lead to a broker that
serves what is left.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import shutil
import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from pydanube import BrokerError
from pydanube.model.errors import OffsetDropped, TimedOut
from pydanube.servers.directory import hold_directory
from pydanube.servers.recovery.recover import recover_directory
from pydanube.storage.config import StorageConfig
from support.directories import change_metadata, copied, first_error, publish, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from attack.target import Target

TEST_ROUNDS = 4
ROUND_TIMEOUT_S = 120.0
RECEIVE_TIMEOUT_S = 30.0
SEALED = "/default/sealed"
MIXED = "/default/mixed"
PARTITION = "/default/split-part-0"
GONE = "/default/gone"
TOPICS = (SEALED, MIXED, PARTITION)
PARTS = ("journal", "metadata", "objects")
METADATA_LOST = {"remove metadata.sqlite", "remove all of metadata"}
SETTINGS = {"storage__seal_bytes": 1, "storage__seal_interval_s": 0.01}
"""Each batch becomes a segment at once."""


@dataclass(frozen=True)
class Truth:
    """A directory at two moments, and what the later one contains."""

    old: Path
    new: Path
    messages: dict[str, dict[int, bytes]]


async def attack(target: Target, chance: Random) -> None:
    """Damage a copy of the directory in one or two places and start a broker."""
    truth = await _truth()
    data = target.directory / "data"
    shutil.copytree(truth.new, data)
    damages = [
        chance.choice(DAMAGES)(data, truth, chance)
        for _ in range(chance.choice((1, 1, 1, 2)))
    ]
    # Metadata and journal record each other's progress.  Without the metadata, nothing
    # shows that a journal is older, so its offsets are assigned again.
    if "older journal" in damages and set(damages) & METADATA_LOST:
        return
    try:
        async with asyncio.timeout(ROUND_TIMEOUT_S):
            await check_damaged(data, truth)
    except (AssertionError, TimeoutError) as finding:
        raise AssertionError(f"after {damages}: {finding!r}") from finding


async def check_damaged(data: Path, truth: Truth) -> str:
    """
    Start a broker on the damaged directory *data* and compare it with *truth*.

    Return whether it ``served``, or how it was recovered.
    """
    with quiet():
        if await _serves_truth(data, truth, after_recovery=False):
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
        if not await _serves_truth(data, truth, after_recovery=True):
            return "refused"
        return "recovered" if findings.written else "whole"


async def _serves_truth(data: Path, truth: Truth, *, after_recovery: bool) -> bool:
    """Whether a broker starts on *data*; if so it must serve nothing but the truth."""
    try:
        async with serving(data) as client:
            for topic in TOPICS:
                await _check_topic(client, topic, truth, after_recovery)
            names = await client.topics()
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


async def _check_topic(client, topic: str, truth: Truth, after_recovery: bool) -> None:
    """Read the topic from its beginning to a message that is published now."""
    expected = truth.messages[topic]
    try:
        (offset,) = await publish(client, topic, b"next")
    except TimedOut as error:
        raise AssertionError(f"{topic}: a publisher hangs") from error
    except BrokerError:
        return
    assert offset not in expected, f"{topic}: offset {offset} was given out twice"
    found: dict[int, bytes] = {}
    was_told = False
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
            was_told = True
        except TimedOut as error:
            raise AssertionError(f"{topic}: a reader hangs after {found}") from error
        except BrokerError:
            was_told = True
            break
    found.pop(offset, None)
    wrong = {
        at: payload for at, payload in found.items() if expected.get(at) != payload
    }
    assert not wrong, f"{topic}: read {wrong}, published {expected}"
    missing = expected.keys() - found.keys()
    assert not missing or was_told, f"{topic}: {missing} are missing in silence"


def _check_reason(error: BaseException, data: Path) -> None:
    """The error is one of ours or of the system, and names a part or a file."""
    assert isinstance(error, (BrokerError, OSError)), f"a bug: {error!r}"
    text = str(error)
    assert any(part in text for part in (*PARTS, "LOCK", "segment", str(data))), text


# What may happen to a directory.  Each function says what it has done.


def _files(data: Path, *parts: str) -> list[Path]:
    return sorted(
        path
        for path in data.rglob("*")
        if path.is_file() and str(path.relative_to(data)).startswith(parts or PARTS)
    )


def _some_file(data: Path, chance: Random, *parts: str) -> Path:
    return chance.choice(_files(data, *parts) or [data / "LOCK"])


def truncate(data: Path, _truth: Truth, chance: Random) -> str:
    """Cut a file off."""
    path = _some_file(data, chance)
    size = chance.randrange(path.stat().st_size + 1)
    cut(path, size)
    return f"truncate {path.name} to {size}"


def cut(path: Path, size: int) -> None:
    """Leave the first *size* bytes of a file."""
    with path.open("r+b") as file:
        file.truncate(size)


def flip(data: Path, _truth: Truth, chance: Random) -> str:
    """Flip a bit of the journal or a segment."""
    # SQLite has no checksums, so a bit there may go unnoticed.
    path = _some_file(data, chance, "journal", "objects")
    content = bytearray(path.read_bytes())
    if not content:
        return f"{path.name} is empty"
    at = chance.randrange(len(content))
    content[at] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    return f"flip a bit of {path.name} at {at}"


def remove(data: Path, _truth: Truth, chance: Random) -> str:
    """Remove a file."""
    path = _some_file(data, chance)
    path.unlink()
    return f"remove {path.name}"


def empty(data: Path, _truth: Truth, chance: Random) -> str:
    """Empty a file."""
    path = _some_file(data, chance)
    cut(path, 0)
    return f"empty {path.name}"


def make_older(data: Path, truth: Truth, chance: Random) -> str:
    """Put an older copy in the place of a file."""
    path = _some_file(data, chance)
    older = truth.old / path.relative_to(data)
    if older.is_file():
        shutil.copy(older, path)
    return f"older {path.name}"


def make_part_older(data: Path, truth: Truth, chance: Random) -> str:
    """Put an older copy in the place of a whole part."""
    part = chance.choice(PARTS)
    remove_part(data, part)
    for path in truth.old.glob(f"{part}*"):
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, data / path.name)
    return f"older {part}"


def remove_whole_part(data: Path, _truth: Truth, chance: Random) -> str:
    """Remove a whole part."""
    part = chance.choice(PARTS)
    remove_part(data, part)
    return f"remove all of {part}"


def remove_part(data: Path, part: str) -> None:
    """Remove everything of one part."""
    for path in data.glob(f"{part}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def add_garbage(data: Path, _truth: Truth, chance: Random) -> str:
    """Add a file that does not belong there."""
    place = chance.choice(("", "journal", "objects", "objects/default", "staging"))
    suffix = chance.choice(("", ".journal", ".parquet", ".part", ".tmp"))
    name = f"{chance.randrange(10**20):020d}{suffix}"
    (data / place).mkdir(parents=True, exist_ok=True)
    (data / place / name).write_bytes(chance.randbytes(chance.choice((0, 10, 5000))))
    return f"garbage {place}/{name}"


def make_directory(data: Path, _truth: Truth, chance: Random) -> str:
    """Put a directory in the place of a file."""
    path = _some_file(data, chance)
    path.unlink()
    path.mkdir()
    return f"a directory instead of {path.name}"


DAMAGES: tuple[Callable[[Path, Truth, Random], str], ...] = (
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


_made: list[Truth] = []


async def _truth() -> Truth:
    """The directory that all rounds of this process damage copies of."""
    if not _made:
        place = Path(mkdtemp(prefix="danube-damage-"))
        atexit.register(shutil.rmtree, place)
        with quiet():
            _made.append(await make_truth(place))
    return _made[0]


async def make_truth(place: Path) -> Truth:
    """A directory with segments, unsealed messages, cursors and a deletion."""
    data = place / "data"
    messages: dict[str, dict[int, bytes]] = {topic: {} for topic in TOPICS}

    async def add(client, topic: str, *payloads: bytes) -> None:
        offsets = await publish(client, topic, *payloads)
        messages.get(topic, {}).update(zip(offsets, payloads, strict=True))

    async with serving(data, **SETTINGS) as client:
        await client.create_topic(PARTITION)
        for topic in (*TOPICS, GONE):
            await add(
                client, topic, *(b"%s %d" % (topic.encode(), n) for n in range(4))
            )
        for topic in TOPICS:
            # Sealing is announced to nobody.
            while (await client.describe_topic(topic)).sealed_offset != 4:  # noqa: ASYNC110
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
        f"""INSERT INTO entries VALUES ('/deleted-topics/{topic_id}',
            CAST('{{"name": "{GONE}", "deleted_at": 0}}' AS BLOB), 1)""",
    )
    return Truth(old, data, messages)


@contextmanager
def quiet() -> Iterator[None]:
    """Log nothing: what a broker says about damages is not the runner's concern."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
