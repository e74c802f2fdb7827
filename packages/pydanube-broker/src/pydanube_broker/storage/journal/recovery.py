"""
Recovery of a journal after a crash, from the bytes of its files.

Assumptions about the disk: what was synced is there; of what was not synced, any part
may be there, in any order, complete or torn.  The journal therefore guarantees:

- It writes a group of entries at the end of the last file and acknowledges the group
  when the file is synced.  A crash leaves at most a torn end of the *last* file,
  after everything that was acknowledged.  Recovery cuts it off.
- Reserved space after the end of the last file is all zeros.
- Before it begins a new file, it cuts reserved space off the old one and syncs it.  It
  syncs the new file's head (header and snapshot) before it writes anything else to it,
  and before it removes an old file.  A crash leaves at most a *last* file with only
  an incomplete head.  Recovery removes it; the file before it is complete.
- It removes old files one by one, from the oldest on.  A crash leaves no gap.

Everything else is damage.  The error names the file, the position and what was
expected.  The positions in entries distinguish damage near the end from a crash (see
``journal_format``): a complete entry after the bad position may prove
that the position was on disk already.

The snapshot at the head of each file must agree with the fold of the files before it.
This detects a file that was swapped, or truncated at the end of an entry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from itertools import pairwise

from pydanube.model.errors import CorruptJournal, NewerJournal
from pydanube.model.ids import Offset, TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.wire.batches import BatchFrame
from pydanube.wire.files.journal_format import (
    ENTRY_HEADER_BYTES,
    FILE_HEADER_BYTES,
    Batch,
    Entry,
    FileHeader,
    SnapshotEnd,
    TopicAdopted,
    TopicDeleted,
    decode_entry,
    decode_file_header,
    find_entries,
    is_reserved,
)
from pydanube_broker.storage.journal.state import JournalState

FIRST_NUMBER = 1
SUFFIX = ".journal"
_NAME = re.compile(r"(\d{20})\.journal")
# The head of a new journal: its header and the end of an empty snapshot.
_EMPTY_HEAD_BYTES = FILE_HEADER_BYTES + ENTRY_HEADER_BYTES + 8


@dataclass(slots=True)
class JournalFile:
    """A file of the journal, up to its last complete entry."""

    number: int
    byte_count: int
    head_bytes: int
    """The length of the header and the snapshot."""
    ends: dict[TopicId, Offset] = field(default_factory=dict)
    """The topics with batches in the file, and the end of the last batch of each."""

    @property
    def name(self) -> str:
        """The name of the file."""
        return file_name(self.number)


@dataclass(frozen=True, slots=True, order=True)
class JournalPosition:
    """A position in the journal, ordered by file and then by byte."""

    number: int
    position: int

    def __str__(self) -> str:
        return f"{file_name(self.number)}, position {self.position}"


def end_of(file: JournalFile) -> JournalPosition:
    """Return the position after the last complete entry of *file*."""
    return JournalPosition(file.number, file.byte_count)


@dataclass(frozen=True, slots=True)
class TornEnd:
    """The bytes after the last complete entry, left by a crash and not acknowledged."""

    name: str
    position: int
    byte_count: int
    reason: str
    is_reserved: bool
    """Whether this is unused reserved space."""


@dataclass(slots=True)
class Recovery:
    """The recovered content of a journal."""

    journal_id: bytes | None = None
    """None if there is no journal yet."""
    state: JournalState = field(default_factory=JournalState)
    frames: dict[TopicId, list[BatchFrame]] = field(default_factory=dict)
    """
    The batches of each topic that are not sealed, in order and without gaps.

    The first may begin after the topic's ``sealed_offset``: then a file with sealed
    batches was removed, and the manifest has the segments.
    """
    files: list[JournalFile] = field(default_factory=list)
    torn: TornEnd | None = None
    """The end to cut off the last file."""
    headless_file: str | None = None
    """A file with an incomplete head, to be removed."""
    sessions: dict[int, int] = field(default_factory=dict)
    """The end of each session by its number, if it is an object journal."""

    def apply(self, entry: Entry) -> bool:
        """
        Apply one entry to the state, and keep its batch; return False if it is ignored.

        Raises:
            CorruptJournal: A batch does not continue its topic.
        """
        if not self.state.apply(entry):
            return False
        if type(entry) is Batch:
            self.frames.setdefault(entry.topic_id, []).append(entry.frame)
        elif type(entry) is TopicDeleted or type(entry) is TopicAdopted:
            self.frames.pop(entry.topic_id, None)
        return True

    def reaches(self, position: JournalPosition) -> bool:
        """
        Return whether the journal has everything before *position*.

        What was removed from its beginning counts as there.
        """
        ends = self.sessions or {file.number: file.byte_count for file in self.files}
        if position.number in ends:
            return position.position <= ends[position.number]
        return position.number < max(ends, default=0)


def file_name(number: int) -> str:
    """Return the name of the journal file with *number*."""
    return f"{number:020d}{SUFFIX}"


def number_of(name: str) -> int | None:
    """
    Return the number of the journal file called *name*; None for other files.

    Raises:
        CorruptJournal: The name has the suffix of a journal file, but not its form.
    """
    match = _NAME.fullmatch(name)
    if match is not None:
        return int(match[1])
    if name.endswith(SUFFIX):
        raise CorruptJournal(f"{name}: expected a name of 20 digits and {SUFFIX}")
    return None


def recover(contents: Mapping[str, memoryview]) -> Recovery:
    """
    Recover the journal whose files are *contents*, by name, without changing them.

    The recovered frames are views of these contents.

    Raises:
        NewerJournal: A file has a newer format version than this program reads.
        CorruptJournal: There is damage that a crash cannot explain.
    """
    numbered = sorted(
        (number, view)
        for name, view in contents.items()
        if (number := number_of(name)) is not None
    )
    recovery = Recovery()
    headers = _read_headers(numbered, recovery)
    for header, (number, view) in zip(headers, numbered, strict=False):
        is_last = number == numbered[-1][0]
        _read_file(recovery, header, view, is_last=is_last)
    keep_unsealed(recovery)
    return recovery


def salvage(contents: Mapping[str, memoryview]) -> Recovery:
    """
    Read what is readable of a damaged journal; there may be gaps everywhere.

    Damaged entries, files without a header and files of another journal are skipped.
    Nothing may be appended to the result.

    Raises:
        NewerJournal: A file has a newer format version than this program reads.
    """
    recovery = Recovery()
    for name in sorted(contents):
        match, view = _NAME.fullmatch(name), contents[name]
        try:
            header = decode_file_header(view)
        except NewerJournal:
            raise
        except CorruptJournal:
            continue
        recovery.journal_id = recovery.journal_id or header.journal_id
        is_ours = header.journal_id == recovery.journal_id
        if match is not None and int(match[1]) == header.number and is_ours:
            end = _salvage_entries(recovery, view, header.seed)
            recovery.files.append(JournalFile(header.number, end, FILE_HEADER_BYTES))
    return recovery


def _salvage_entries(recovery: Recovery, view: memoryview, seed: int) -> int:
    """Apply the complete entries of one file; return the end of the last one."""
    state, frames, at, end = recovery.state, recovery.frames, FILE_HEADER_BYTES, 0
    while at < len(view):
        try:
            decoded = decode_entry(view, at, seed)
        except CorruptJournal:
            found = next(find_entries(view, at, seed), None)
            if found is None:
                break
            at = found[0]
            continue
        entry, at = decoded.entry, decoded.end
        end = at
        if type(entry) is Batch:
            known = frames.setdefault(entry.topic_id, [])
            if known and entry.frame.base < known[-1].end:
                continue
            known.append(entry.frame)
            topic = state.topics.get(entry.topic_id)
            if topic is not None:
                topic.end_offset = Offset(entry.frame.base)
        elif type(entry) is TopicDeleted or type(entry) is TopicAdopted:
            frames.pop(entry.topic_id, None)
        state.apply(entry)
    return end


def _read_headers(
    numbered: list[tuple[int, memoryview]], recovery: Recovery
) -> list[FileHeader]:
    """Return the headers of all files, except a last one with an incomplete head."""
    headers: list[FileHeader] = []
    for index, (number, view) in enumerate(numbered):
        name = file_name(number)
        if index and number != numbered[index - 1][0] + 1:
            raise CorruptJournal(
                f"{file_name(number - 1)}: expected this file, "
                f"because there is {name} and there are older ones"
            )
        try:
            header = decode_file_header(view)
        except NewerJournal as error:
            raise NewerJournal(f"{name}, position 0: {error}") from error
        except CorruptJournal as error:
            if index < len(numbered) - 1:
                raise _at(name, 0, error) from error
            _check_last_head(
                view, number, recovery.journal_id, None, _at(name, 0, error)
            )
            recovery.headless_file = name
            break
        if header.number != number:
            raise CorruptJournal(
                f"{name}, position 0: expected file number {number}, the header says "
                f"{header.number}"
            )
        if recovery.journal_id is None:
            recovery.journal_id = header.journal_id
        elif recovery.journal_id != header.journal_id:
            raise CorruptJournal(
                f"{name}, position 0: expected journal {recovery.journal_id.hex()}, "
                f"the file belongs to journal {header.journal_id.hex()}"
            )
        headers.append(header)
    return headers


def _read_file(
    recovery: Recovery, header: FileHeader, view: memoryview, *, is_last: bool
) -> None:
    name, seed = file_name(header.number), header.seed
    snapshot = JournalState()
    count, at = 0, FILE_HEADER_BYTES
    while True:
        try:
            decoded = decode_entry(view, at, seed)
        except CorruptJournal as error:
            if not is_last:
                raise _at(name, at, error) from error
            journal_id = header.journal_id if recovery.files else None
            reason = _at(name, at, error)
            _check_last_head(view, header.number, journal_id, header, reason)
            recovery.headless_file = name
            if not recovery.files:
                recovery.journal_id = None
            return
        at = decoded.end
        if isinstance(decoded.entry, SnapshotEnd):
            break
        count += 1
        snapshot.apply(decoded.entry)
    if decoded.entry.count != count:
        raise CorruptJournal(
            f"{name}, position {decoded.position}: expected a snapshot of "
            f"{decoded.entry.count} entries, there are {count}"
        )
    if recovery.files and recovery.state.positions() != snapshot.positions():
        raise CorruptJournal(
            f"{name}, position {FILE_HEADER_BYTES}: expected a snapshot of what "
            f"the files up to {file_name(header.number - 1)} say; one of them was "
            "replaced or truncated"
        )
    recovery.state = snapshot
    file = JournalFile(header.number, at, at)
    recovery.files.append(file)
    _read_entries(recovery, file, view, seed, is_last=is_last)


def _read_entries(
    recovery: Recovery,
    file: JournalFile,
    view: memoryview,
    seed: int,
    *,
    is_last: bool,
) -> None:
    at, end = file.byte_count, len(view)
    apply, ends = recovery.apply, file.ends
    while at < end:
        try:
            decoded = decode_entry(view, at, seed)
        except CorruptJournal as error:
            if not is_last or _was_synced(view, at, seed):
                raise _at(file.name, at, error) from error
            recovery.torn = TornEnd(
                file.name, at, end - at, str(error), is_reserved=is_reserved(view, at)
            )
            break
        # A crash cannot be the reason for a complete entry that does not fit.
        try:
            counts = apply(decoded.entry)
        except CorruptJournal as error:
            raise _at(file.name, at, error) from error
        entry = decoded.entry
        if counts and type(entry) is Batch:
            ends[entry.topic_id] = Offset(entry.frame.end)
        at = decoded.end
    file.byte_count = at


def _was_synced(view: memoryview, position: int, seed: int) -> bool:
    """Return whether a later entry proves that *position* had been on disk."""
    return any(synced > position for _, synced in find_entries(view, position, seed))


def _check_last_head(
    view: memoryview,
    number: int,
    journal_id: bytes | None,
    header: FileHeader | None,
    reason: CorruptJournal,
) -> None:
    """
    Raise *reason* unless a crash explains the incomplete head of the last file.

    *journal_id* is that of the files before it, or None; *header* is the header of the
    file, or None if it is damaged.
    """
    if journal_id is None and number != FIRST_NUMBER:
        raise CorruptJournal(f"{reason}; the file before it is missing") from reason
    if header is None and journal_id is not None:
        header = FileHeader(number, journal_id)
    if header is None:
        # Without the header nothing in the file can be verified.
        is_damage = len(view) > _EMPTY_HEAD_BYTES
    else:
        # Any entry after the head proves that the head was on disk.
        is_damage = _was_synced(view, 0, header.seed)
    if is_damage:
        raise reason


def _at(name: str, position: int, error: CorruptJournal) -> CorruptJournal:
    return CorruptJournal(f"{name}, position {position}: {error}")


def keep_unsealed(recovery: Recovery) -> None:
    """
    Drop frames that are sealed or whose topic was deleted; check the others.

    Raises:
        CorruptJournal: The frames of a topic have a gap.
    """
    kept: dict[TopicId, list[BatchFrame]] = {}
    for topic_id, frames in recovery.frames.items():
        topic = recovery.state.topics.get(topic_id)
        if topic is None:
            continue
        unsealed = [frame for frame in frames if frame.end > topic.sealed_offset]
        # ``apply`` has checked that each frame begins where the last one ended, unless
        # the topic was opened again at another offset in between.
        for before, after in pairwise(unsealed):
            if before.end != after.base:
                raise CorruptJournal(
                    f"topic {topic_id} ({topic.name}): expected a batch at offset "
                    f"{before.end}, the next one is at {after.base}"
                )
        if unsealed:
            kept[topic_id] = unsealed
    recovery.frames = kept
