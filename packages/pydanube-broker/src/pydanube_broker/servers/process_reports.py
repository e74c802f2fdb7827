"""
Reports of all processes of one broker, whichever of them is asked.

A scrape of the shared port reaches any process.  That one asks the others at a socket
in the directory of each, which only their user can reach.  So it needs neither the
credentials of the client nor TLS.

A question is a line of JSON.  The answer is a line of JSON, which says whether the
process is ready, and then its metrics, if they were asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import msgspec

from pydanube.aio.long_work import LongWork
from pydanube.aio.tasks import gather
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.metrics import PROCESSES, PROCESSES_READY, Metric
from pydanube_broker.servers.connections.process_sockets import ProcessGroup

log = logging.getLogger(__name__)

SOCKET = "reports"
ANSWER_S = 5.0
"""A process that does not answer in this time is left out; a scrape takes 10 s."""
READINESS_S = 2.0
"""The same for questions about readiness, because probes wait for 5 s."""
ANSWER_BYTES_MAX = 256 * 1024 * 1024
QUESTION_BYTES_MAX = 64 * 1024


class Readiness(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a process serves topics."""

    ready: bool
    problems: list[str] = []
    code: str = ""
    message: str = ""
    """Why it does not serve topics."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question of one process to the others."""

    metrics: bool = False
    flush: bool = False
    """Whether cursors are to be written, and the journal to be synced."""
    topic: str | None = None
    accept: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The report of one process."""

    readiness: Readiness
    metrics: bytes = b""


Report: TypeAlias = Callable[[Question], Awaitable[Answer]]

_READINESS = msgspec.json.Decoder(Readiness)
_QUESTION = msgspec.json.Decoder(Question)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReports:
    """The reports of all processes of a broker, as one of them sees them."""

    group: ProcessGroup
    own_port: int
    """The HTTP port that only this process has; there it reports on itself alone."""
    report: Report

    async def ask_all(
        self, question: Question, answer_s: float = ANSWER_S
    ) -> dict[int, Answer]:
        """
        Return the answers of this process and of the others, by their numbers.

        A process that does not answer within *answer_s* is not ready.
        """

        async def ask(number: int) -> Answer:
            if number == self.group.number:
                return await self.report(question)
            return await self._ask(number, question, answer_s)

        numbers = range(1, self.group.count + 1)
        answers = await gather(map(ask, numbers))
        return dict(zip(numbers, answers, strict=True))

    async def _ask(self, number: int, question: Question, answer_s: float) -> Answer:
        try:
            async with asyncio.timeout(answer_s):
                reader, writer = await asyncio.open_unix_connection(
                    sock=await self.group.connect(number, SOCKET)
                )
                try:
                    writer.write(msgspec.json.encode(question) + b"\n")
                    line, _, metrics = (await _read(reader)).partition(b"\n")
                    return Answer(_READINESS.decode(line), metrics)
                finally:
                    writer.close()
        except (OSError, TimeoutError, msgspec.DecodeError) as error:
            log.debug("process %d does not answer: %r", number, error)
            is_there = isinstance(error, TimeoutError)
            message = "it does not answer" if is_there else "the process is not there"
            return Answer(Readiness(ready=False, code="unavailable", message=message))

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Answer the other processes during the body."""

        async def answer(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            try:
                # A process that asks and goes away fails alone.
                with suppress(OSError, TimeoutError, ValueError, msgspec.DecodeError):
                    async with asyncio.timeout(ANSWER_S):
                        question = _QUESTION.decode(await reader.readline())
                        found = await self.report(question)
                        writer.write(msgspec.json.encode(found.readiness) + b"\n")
                        writer.write(found.metrics)
                        await writer.drain()
            finally:
                writer.close()

        async with await asyncio.start_unix_server(
            answer, sock=self.group.listen(SOCKET), limit=QUESTION_BYTES_MAX
        ):
            yield


async def _read(reader: asyncio.StreamReader) -> bytes:
    parts, size = [], 0
    while part := await reader.read(1024 * 1024):
        parts.append(part)
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise OSError(f"a process reports more than {ANSWER_BYTES_MAX} bytes")
    return b"".join(parts)


def readiness_of_all(answers: Mapping[int, Answer]) -> Readiness:
    """
    Return whether a broker is ready: one of its processes is.

    What is wrong with the others is a problem of the broker.
    """
    found = {number: answer.readiness for number, answer in answers.items()}
    if not any(each.ready for each in found.values()):
        return min(found.items())[1]
    problems: dict[str, None] = {}
    for number, each in found.items():
        if not each.ready:
            problems[f"process {number} is not ready: {each.message}"] = None
        # Each process knows the problems of the broker as a whole.
        problems |= dict.fromkeys(each.problems)
    return Readiness(ready=True, problems=list(problems))


async def metrics_of_all(answers: Mapping[int, Answer], work: LongWork) -> bytes:
    """Return the metrics of all processes, with the label ``process``."""
    families: dict[bytes, tuple[int, list[bytes]]] = {}
    end = b""
    for number, answer in answers.items():
        label = b'process="%d"' % number
        lines: list[bytes] = []
        for line in answer.metrics.splitlines(keepends=True):
            await work.did()
            if not line.startswith(b"#"):
                lines.append(_labelled(line, label))
            elif line.startswith(b"# EOF"):
                end = line
            else:
                family = line.split(b" ", 3)[2]
                first, lines = families.setdefault(family, (number, []))
                if number == first:
                    lines.append(line)
    ready = sum(each.readiness.ready for each in answers.values())
    return b"".join(
        [
            _gauge(PROCESSES, len(answers)),
            _gauge(PROCESSES_READY, ready),
            *(b"".join(lines) for _, lines in families.values()),
            end,
        ]
    )


def _labelled(line: bytes, label: bytes) -> bytes:
    """Return the line of a series with one more label."""
    name, _, rest = line.partition(b" ")
    before, brace, _ = name.partition(b"{")
    if not brace:
        return before + b"{" + label + b"} " + rest
    # Labels may have spaces, so the rest of the line is only put behind.
    return before + b"{" + label + b"," + line[len(before) + 1 :]


def _gauge(metric: Metric, value: float) -> bytes:
    name = metric.name
    return (
        f"# HELP {name} {metric.help}\n# TYPE {name} gauge\n{name} {value}\n".encode()
    )
