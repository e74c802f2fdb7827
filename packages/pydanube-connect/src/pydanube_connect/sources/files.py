"""
A source of the lines of files that grow, are rotated and appear.

How far each file was read is stored with the messages, so each line is published
exactly once.  A file is recognised by its inode and its first bytes, so it can be
renamed.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import stat
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pydanube.declarations.pure.sections import Section, parse_duration
from pydanube.model.quantities import BYTE_UNITS, parse_quantity
from pydanube_connect.connector import Source
from pydanube_connect.option_problems import duration_problems, size_problems
from pydanube_connect.pure.failures import ConnectorFailed
from pydanube_connect.pure.records import Batch, Record

log = logging.getLogger("pydanube_connect")

FILES_MAX = 1000
"""How many files can be followed: all are part of each position."""
HEAD_BYTES = 1024
"""How many bytes at its beginning identify a file."""
READ_BYTES = 1024 * 1024
BATCH_LINES_MAX = 5000
RENAMED_S = 3600
"""How long a file that no pattern matches any more must be unchanged to be done."""


class FilesStart(Enum):
    """Where to begin in the files that exist when a connector runs first."""

    EARLIEST = "earliest"
    LATEST = "latest"


class FilesOptions(Section, frozen=True, kw_only=True):
    """The options of ``FilesSource``."""

    directory: Annotated[str, Meta(description="The directory with the files.")]
    patterns: Annotated[
        list[str],
        Meta(
            description="The files in it, such as `*.log`, or `**/*.log` in all "
            "directories below."
        ),
    ]
    start: Annotated[
        FilesStart,
        Meta(
            description="Where to begin in files that exist when the connector runs "
            "first; others are read from their beginning."
        ),
    ] = FilesStart.EARLIEST
    poll: Annotated[
        str, Meta(description="How long to wait when there are no new lines.")
    ] = "1s"
    line_bytes_max: Annotated[
        str,
        Meta(
            description="The maximum size of a line; a longer one becomes a dead "
            "letter."
        ),
    ] = "1MiB"


class FilesSource(Source):
    """
    Publishes the lines of files, one message for each, and follows them.

    Delivery: exactly once, in the order of each file.
    """

    Options = FilesOptions
    extra = "cli"

    @classmethod
    def problems(cls, options: FilesOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = {}
        if not Path(options.directory).is_dir():
            found["directory"] = f"there is no directory {options.directory!r}"
        for each in options.patterns:
            if not each or each.startswith("/") or ".." in Path(each).parts:
                found["patterns"] = f"{each!r} is not a pattern below the directory"
        if not options.patterns:
            found["patterns"] = "has no pattern, such as '*.log'"
        found |= duration_problems(options, "poll")
        found |= size_problems(options, "line_bytes_max")
        return found

    async def batches(self, position: Any) -> AsyncIterator[Batch]:
        """Yield the lines after *position*, the progress of each file."""
        options: FilesOptions = self.options
        poll_s = parse_duration(options.poll)
        files = _Files(options, position)
        if position is None:
            await asyncio.to_thread(files.begin)
            yield Batch([], files.position)
        while True:
            has_read = False
            for identity in await asyncio.to_thread(files.scan):
                while records := await asyncio.to_thread(files.read, identity):
                    has_read = True
                    yield Batch(records, files.position)
            if not has_read:
                await asyncio.sleep(poll_s)


class Progress(msgspec.Struct, kw_only=True):
    """How far a file was read."""

    path: str
    """Relative to the directory; where the file was seen last."""
    offset: int = 0
    """Everything before it is published."""
    head: str = ""
    """A checksum of its first bytes."""
    head_bytes: int = 0
    is_final: bool = False
    """Whether it was renamed long ago: its last line is complete without a newline."""


class _Files:
    """The files of a directory; the methods block."""

    def __init__(self, options: FilesOptions, position: Any) -> None:
        self._directory = Path(options.directory)
        self._options = options
        self._line_max = int(parse_quantity(options.line_bytes_max, BYTE_UNITS) or 0)
        self._files: dict[str, Progress] = {}
        # Where the search for the end of a very long line continues, by path.
        self._searched: dict[str, int] = {}
        if position is not None:
            try:
                self._files = msgspec.convert(position, dict[str, Progress])
            except msgspec.ValidationError as error:
                raise ConnectorFailed(
                    f"the stored position is invalid: {error}"
                ) from error

    @property
    def position(self) -> Any:
        return msgspec.to_builtins(self._files)

    def begin(self) -> None:
        """Note where to begin in the files that exist."""
        if self._options.start is FilesStart.LATEST:
            for path, facts in self._matching():
                progress = Progress(path=path)
                with (self._directory / path).open("rb") as file:
                    progress.offset = _after_last_line(file, facts.st_size)
                    _note_head(progress, file)
                self._add(_identity(facts), progress)

    def scan(self) -> list[str]:
        """Return the identities of files, in the order in which to read them."""
        found: dict[str, tuple[str, os.stat_result]] = {}
        for path, facts in self._matching():
            found[_identity(facts)] = (path, facts)
        for identity, (path, facts) in found.items():
            known = self._files.get(identity)
            if known is None:
                self._add(identity, Progress(path=path))
            else:
                known.path, known.is_final = path, False
                self._check(known, facts)
        for identity in self._files.keys() - found.keys():
            self._look_for(identity, found)
        # The oldest first.
        return sorted(found, key=lambda each: found[each][1].st_mtime_ns)

    def _matching(self) -> Iterator[tuple[str, os.stat_result]]:
        for pattern in self._options.patterns:
            for path in self._directory.glob(pattern):
                try:
                    facts = path.stat()
                except FileNotFoundError:
                    continue
                if stat.S_ISREG(facts.st_mode):
                    yield str(path.relative_to(self._directory)), facts

    def _add(self, identity: str, progress: Progress) -> None:
        if len(self._files) >= FILES_MAX:
            raise ConnectorFailed(
                f"the patterns match more than {FILES_MAX:,} files: move those away "
                "that are done"
            )
        self._files[identity] = progress

    def _look_for(
        self, identity: str, found: dict[str, tuple[str, os.stat_result]]
    ) -> None:
        """
        Find a file that no pattern matches any more, or forget it.

        The program that writes it may not know yet that it was renamed.
        """
        progress = self._files[identity]
        entry = self._renamed(identity, progress.path)
        if entry is None:
            log.info("the file %s is gone", progress.path)
            del self._files[identity]
            return
        path, facts = entry
        progress.path = path
        self._check(progress, facts)
        if time.time_ns() - facts.st_mtime_ns > RENAMED_S * 1_000_000_000:
            progress.is_final = True
            if progress.offset >= facts.st_size:
                del self._files[identity]
                return
        found[identity] = entry

    def _renamed(self, identity: str, path: str) -> tuple[str, os.stat_result] | None:
        """Return the name that the file *path* has now, in the same directory."""
        directory = (self._directory / path).parent
        with suppress(FileNotFoundError), os.scandir(directory) as entries:
            for entry in entries:
                facts = entry.stat()
                if _identity(facts) == identity and stat.S_ISREG(facts.st_mode):
                    return str(Path(entry.path).relative_to(self._directory)), facts
        return None

    def _check(self, progress: Progress, facts: os.stat_result) -> None:
        """Begin anew in a file that was truncated or replaced in its inode."""
        if facts.st_size >= progress.offset:
            with (self._directory / progress.path).open("rb") as file:
                head = file.read(progress.head_bytes)
            if _checksum(head) == progress.head or not progress.head_bytes:
                return
        log.info("the file %s begins anew", progress.path)
        progress.offset, progress.head, progress.head_bytes = 0, "", 0
        self._searched.pop(progress.path, None)

    def read(self, identity: str) -> list[Record]:
        """
        Return the next lines of a file, and note them as read.

        If a line is too long, this is its beginning, with the problem.
        """
        progress = self._files[identity]
        try:
            with (self._directory / progress.path).open("rb") as file:
                if _identity(os.fstat(file.fileno())) != identity:
                    return []  # It was renamed; the next scan finds it.
                file.seek(progress.offset)
                data = file.read(max(READ_BYTES, self._line_max + 1))
                _note_head(progress, file)
        except FileNotFoundError:
            return []
        *lines, rest = data.split(b"\n")
        if not lines and len(rest) > self._line_max:
            return self._skip(progress)
        if not lines and rest and progress.is_final:
            return [self._record(progress, rest, len(rest))]
        return [
            self._record(progress, line, len(line) + 1)
            for line in lines[:BATCH_LINES_MAX]
        ]

    def _skip(self, progress: Progress) -> list[Record]:
        """Return the beginning of a line that is longer than what is read at once."""
        with (self._directory / progress.path).open("rb") as file:
            file.seek(max(progress.offset, self._searched.get(progress.path, 0)))
            end = None
            while end is None and (data := file.read(READ_BYTES)):
                at = data.find(b"\n")
                if at >= 0:
                    end = file.tell() - len(data) + at + 1
            if end is None:
                self._searched[progress.path] = file.tell()
                if not progress.is_final:
                    return []  # It is still being written.
                end = file.tell()
            self._searched.pop(progress.path, None)
            file.seek(progress.offset)
            line = file.read(self._line_max + 1)
        return [self._record(progress, line, end - progress.offset)]

    def _record(self, progress: Progress, line: bytes, size: int) -> Record:
        problem = None
        if len(line) > self._line_max:
            problem = (
                f"the line at {progress.offset} of {progress.path} is longer than "
                f"{self._options.line_bytes_max}: raise 'line_bytes_max'"
            )
            line = line[: self._line_max]
        record = Record(
            value=line.removesuffix(b"\r"),
            attributes={
                "file.path": os.fsencode(progress.path).decode(errors="replace"),
                "file.offset": str(progress.offset),
            },
            problem=problem,
        )
        progress.offset += size
        return record


def _identity(facts: os.stat_result) -> str:
    return f"{facts.st_dev}:{facts.st_ino}"


def _checksum(head: bytes) -> str:
    return hashlib.sha256(head).hexdigest()[:16]


def _note_head(progress: Progress, file: Any) -> None:
    """Note the checksum of the first bytes, as long as they are few."""
    if progress.head_bytes < HEAD_BYTES:
        file.seek(0)
        head = file.read(HEAD_BYTES)
        progress.head, progress.head_bytes = _checksum(head), len(head)


def _after_last_line(file: Any, size: int) -> int:
    """Return where the last, incomplete line of a file begins, or its end."""
    end = size
    while end > 0:
        start = max(0, end - READ_BYTES)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return int(start + newline + 1)
        end = start
    return 0
