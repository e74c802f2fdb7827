"""Trials: whether connectors could run, and what sources would publish."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import Any

import msgspec

from pydanube.client.client import Client, connect
from pydanube.model.errors import InvalidName, SubscriptionNotFound, TopicNotFound
from pydanube.model.names import TopicName
from pydanube_connect.connector import Sink, Source
from pydanube_connect.encoding import TopicEncoder, open_trial_encoder
from pydanube_connect.loading import DeclaredConnector
from pydanube_connect.pure.failures import error_line
from pydanube_connect.pure.mapping import Draft, InvalidRecord, RecordMapping
from pydanube_connect.pure.records import Record
from pydanube_connect.running import CONNECT_WAIT_S
from pydanube_connect.sinks.spark import SparkSink

log = logging.getLogger("pydanube_connect")


class Sample(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message that a source would publish, or a record that it could not."""

    topic: str
    key: str | None = None
    payload: str = ""
    """As text; bytes that are not UTF-8 are replaced."""
    attributes: dict[str, str] = {}
    problem: str | None = None
    """Why the record cannot be published."""


class Trial(msgspec.Struct, kw_only=True):
    """The result of a trial."""

    connector: str
    kind: str
    topic: str
    problem: str | None = None
    """Why the connector could not run now."""
    facts: list[str] = []
    """In words, for example how many messages wait."""
    samples: list[Sample] = []

    @property
    def has_failed(self) -> bool:
        return self.problem is not None or any(each.problem for each in self.samples)


async def try_connector(
    declared: DeclaredConnector, *, records_max: int = 5, timeout_s: float = 10.0
) -> Trial:
    """
    Connect to both systems, and read some records of a source, without any change.

    Topics and schemas are not created, nothing is published, written or acknowledged,
    and sources begin as if they had never run.  A source whose reading would change the
    other system is only checked.

    Args:
        declared: The connector.
        records_max: How many records of a source are shown.
        timeout_s: How long to wait for each of: the connection, the records.  The trial
            ends after three times as long, whatever the connector does.
    """
    trial = Trial(
        connector=declared.name, kind=declared.spec.kind, topic=declared.spec.topic
    )
    try:
        async with (
            asyncio.timeout(3 * timeout_s),
            connect(declared.broker, wait_s=min(timeout_s, CONNECT_WAIT_S)) as client,
        ):
            attempt = _Attempt(client, declared, trial)
            await attempt.run(records_max, timeout_s)
    except TimeoutError:
        trial.problem = f"no answer within {timeout_s:g} s"
    except Exception as error:  # A connector may raise any.
        log.debug("the trial of %s has failed", declared.name, exc_info=error)
        trial.problem = declared.redact(error_line(error))
    return trial


class _Attempt:
    """The trial of one connector."""

    def __init__(
        self, client: Client, declared: DeclaredConnector, trial: Trial
    ) -> None:
        spec = declared.spec
        self._client = client
        self._declared = declared
        self._trial = trial
        self._encoders: dict[str, TopicEncoder] = {}
        self._mapping = RecordMapping(
            spec.mapping,
            spec.topic,
            has_schema=spec.schema is not None,
            uses_ids=spec.deduplicate is not None,
            keeps_schemas=not declared.transform,
        )

    async def run(self, records_max: int, timeout_s: float) -> None:
        connector = self._declared.make()
        await self._note_topics()
        if isinstance(connector, SparkSink):
            self._note("Spark checks the sink when it starts")
            return
        if isinstance(connector, Sink):
            async with asyncio.timeout(timeout_s), connector:
                await connector.check()
            await self._note_backlog()
            return
        assert isinstance(connector, Source)
        async with asyncio.timeout(timeout_s):
            await connector.check()
        if connector.has_effects or not connector.has_positions:
            self._note("reading would change the source, so nothing was read")
            return
        records: list[Record] = []
        try:
            async with asyncio.timeout(timeout_s):
                records += await _first_records(connector, records_max)
        except TimeoutError:
            self._note(f"nothing to read within {timeout_s:g} s")
        await self._note_samples(records)

    def _note(self, fact: str) -> None:
        self._trial.facts.append(fact)

    async def _note_topics(self) -> None:
        """Note which topics will be created; the broker answers in any case."""
        spec = self._declared.spec
        for topic in filter(None, (spec.topic, spec.dead_letters)):
            if not await self._client.topics.partitions(topic):
                self._note(f"{topic} will be created")

    async def _note_backlog(self) -> None:
        spec = self._declared.spec
        name = spec.subscription or self._declared.name
        waiting = 0
        with suppress(TopicNotFound, SubscriptionNotFound):
            for topic in await self._client.topics.partitions(spec.topic):
                facts = await self._client.subscriptions.describe(topic, name)
                waiting += facts.backlog
            self._note(f"{waiting:,} messages wait")

    async def _note_samples(self, records: Sequence[Record]) -> None:
        found = [sample for each in records for sample in await self._samples_of(each)]
        if records:
            invalid = sum(each.problem is not None for each in found)
            self._note(
                f"{len(records)} records read: {len(found) - invalid} messages"
                + (f", {invalid} invalid" if invalid else "")
            )
        self._trial.samples = found

    async def _samples_of(self, record: Record) -> list[Sample]:
        try:
            outputs = await asyncio.to_thread(self._declared.transform.apply, record)
            drafts = [self._mapping.draft(each) for each in outputs]
            for each in drafts:
                TopicName.parse(each.topic)
        except (InvalidRecord, InvalidName) as error:
            topic = record.topic or self._declared.spec.topic
            return [Sample(topic=topic, problem=str(error))]
        return [await self._sample(each) for each in drafts]

    async def _sample(self, draft: Draft) -> Sample:
        topic = draft.topic
        if topic not in self._encoders:
            directory = self._declared.file.parent
            self._encoders[topic] = await open_trial_encoder(
                self._client, topic, self._declared.spec.schema, directory
            )
        groups, refused = self._encoders[topic].encode([draft])
        if refused:
            return Sample(topic=topic, problem=refused[0])
        payload: bytes = groups[0].batch.column("payload")[0].as_py()
        return Sample(
            topic=topic,
            key=None if draft.key is None else draft.key.decode(errors="replace"),
            payload=payload.decode(errors="replace"),
            attributes=dict(draft.attributes),
        )


async def _first_records(source: Source, records_max: int) -> list[Record]:
    """Return the records of the first batch that has any; none at the end."""
    batches: Any = source.batches(None)
    async with aclosing(batches):
        async for batch in batches:
            if batch.records:
                return list(batch.records[:records_max])
    return []
