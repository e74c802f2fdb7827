"""
The import of definitions into a broker or a cluster.

An import only adds and changes: what the document does not name stays as it is, and
nothing is deleted.  Each thing is carried out for itself, so an import that has failed
half way can be repeated; what is there already is left alone.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from itertools import islice, starmap
from typing import Any, TypeVar

import msgspec

from pydanube.aio.locks import NamedLocks
from pydanube.aio.tasks import gather
from pydanube.client.client import Client
from pydanube.client.described_topics import describe_all
from pydanube.client.messages.schema import Schema
from pydanube.client.operations.changes import changes_of
from pydanube.model.descriptions import TopicDescription
from pydanube.model.errors import BrokerError, NotFound, SchemaNotFound, Unavailable
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.policy import NamespaceSettings
from pydanube.model.positions import parse_choice
from pydanube.model.schemas import (
    Compatibility,
    ReferencedVersion,
    SchemaType,
    SchemaVersion,
)
from pydanube.model.setting_documents import (
    changes_between,
    document_of,
    namespace_document_of,
    subscription_document_of,
    summarize,
    with_document,
    with_namespace_document,
    with_subscription_document,
)
from pydanube_cli.administration.definitions.pure.document import (
    BindingDefinition,
    ConnectorDefinition,
    Definitions,
    RoleDefinition,
    SchemaDefinition,
    SubjectDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)

T = TypeVar("T")

CONCURRENT_MAX = 32
"""How many things of one kind are carried out at the same time."""

RETRIED_S = 20.0
"""For how long one thing is tried while its broker is not available."""
DELAY_S, DELAY_S_MAX = 0.1, 2.0


class Action(Enum):
    """The action of an import on a thing; in a dry run: the planned one."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of an import for one thing in the document."""

    kind: str
    """
    ``namespace``, ``schema``, ``references``, ``topic``, ``subscription``, ``role``,
    ``binding`` or ``connector``.
    """
    name: str
    action: Action
    detail: str = ""
    """The changes, or why it has failed."""


Found = tuple[Action, str]
NOTHING: Found = Action.UNCHANGED, ""


async def import_definitions(
    client: Client,
    definitions: Definitions,
    *,
    dry_run: bool = False,
) -> list[Outcome]:
    """
    Create and change what *definitions* name; with *dry_run*, only say what.

    Raises:
        Unavailable: A broker cannot be reached; what was done before stays.
    """
    run = _Import(client, is_dry=dry_run)
    await run.each("namespace", definitions.namespaces, run.namespace)
    await run.each("schema", definitions.subjects, run.subject)
    referring = {
        f"version {number} of {name}": (name, number, each)
        for name, subject in definitions.subjects.items()
        for number, each in subject.numbered()
        if each.references
    }
    # Subjects may refer to each other, so all versions exist first.
    await run.each("references", referring, lambda _, each: run.references(*each))
    await run.each("topic", definitions.topics, run.topic)
    wanted = {
        f"{name} of {topic}": (topic, name, each)
        for topic, definition in definitions.topics.items()
        for name, each in definition.subscriptions.items()
    }
    await run.each("subscription", wanted, lambda _, each: run.subscription(*each))
    await run.each("role", definitions.roles, run.role)
    await run.each("binding", definitions.bindings, run.binding)
    await run.each("connector", definitions.connectors, run.connector)
    return run.outcomes


class _Import:
    """One import."""

    def __init__(self, client: Client, *, is_dry: bool) -> None:
        self.outcomes: list[Outcome] = []
        self._client = client
        self._is_dry = is_dry
        self._namespaces: set[str] | None = None
        # Subjects that did not exist before.
        self._new_subjects: set[str] = set()
        # What the versions of the document are at the broker; None: a dry run would
        # have registered them.
        self._versions: dict[tuple[str, int], SchemaVersion | None] = {}
        # The partitions of the topics that were described last.
        self._described: OrderedDict[str, list[TopicDescription]] = OrderedDict()
        self._locks: NamedLocks[str] = NamedLocks()

    async def each(
        self,
        kind: str,
        wanted: Mapping[str, T],
        carry_out: Callable[[str, T], Awaitable[Found]],
    ) -> None:
        """Carry out each thing of a kind, and note what became of it."""

        async def carry_out_one(name: str, definition: T) -> Outcome:
            try:
                action, detail = await _patiently(carry_out, name, definition)
            except Unavailable:
                raise
            except BrokerError as error:
                action, detail = Action.FAILED, str(error)
            return Outcome(kind=kind, name=name, action=action, detail=detail)

        remaining = iter(wanted.items())
        while portion := list(islice(remaining, CONCURRENT_MAX)):
            # The broker syncs what it stores at the same time together.
            self.outcomes += await gather(starmap(carry_out_one, portion))

    async def namespace(self, name: str, document: dict[str, Any]) -> Found:
        namespaces = self._client.namespaces
        if self._namespaces is None:
            self._namespaces = set(map(str, await namespaces.list()))
        is_new, old = name not in self._namespaces, NamespaceSettings()
        if not is_new:
            found = await namespaces.describe(name)
            old = NamespaceSettings(policy=found.policy, retention=found.retention)
        new = with_namespace_document(old, document)
        if not self._is_dry:
            if is_new:
                await namespaces.create(name)
            if new != old:
                await namespaces.configure(name, **changes_of(old, new))
        shown = _changes(namespace_document_of(old), namespace_document_of(new))
        return _found(is_new, shown)

    async def subject(self, name: str, wanted: SubjectDefinition) -> Found:
        schemas = self._client.schemas
        mode = parse_choice("compatibility", wanted.compatibility, Compatibility)
        try:
            known = await schemas.versions(name)
        except SchemaNotFound:
            known = []
        there = {
            (each.type.value, each.definition, each.message): each for each in known
        }
        missing = []
        for number, each in wanted.numbered():
            found = there.get((each.type, each.definition, each.message))
            self._versions[name, number] = found
            if found is None:
                missing.append((number, each))
        if not known:
            self._new_subjects.add(name)
        is_new = name in self._new_subjects
        old_mode = await schemas.compatibility(name) if known else None
        if is_new and known:
            # An attempt has ended in between.
            await schemas.set_compatibility(name, Compatibility.NONE)
            old_mode = Compatibility.NONE
        for at, (number, each) in enumerate([] if self._is_dry else missing):
            self._versions[name, number] = await schemas.register(
                name,
                _schema_of(each),
                description=each.description,
                tags=each.tags,
            )
            if not known and not at:
                # Versions may be older than the compatibility that is wanted.
                await schemas.set_compatibility(name, Compatibility.NONE)
        if not self._is_dry and (mode is not old_mode):
            await schemas.set_compatibility(name, mode)
        changes = [f"{len(missing)} versions"] if missing else []
        if old_mode is not None and mode is not old_mode:
            changes.append(f"compatibility: {old_mode.value} → {mode.value}")
        return _found(is_new, ", ".join(changes))

    async def references(
        self, name: str, number: int, wanted: SchemaDefinition
    ) -> Found:
        """Let a version refer to others, whose numbers may differ at the broker."""
        references = []
        for each in wanted.references:
            key = each.subject, each.version
            if key not in self._versions:
                return Action.FAILED, (
                    f"there is no version {key[1]} of {key[0]} in the file"
                )
            found = self._versions[key]
            if found is not None:
                references.append(
                    ReferencedVersion(
                        name=each.name, subject=each.subject, version=found.version
                    )
                )
        user = self._versions.get((name, number))
        if user is None and not self._is_dry:
            return Action.FAILED, "the version is missing"
        known = () if user is None else user.references
        count = sum(each not in known for each in references)
        count += len(wanted.references) - len(references)
        if count and not self._is_dry:
            await self._client.schemas.register(
                name, _schema_of(wanted), references=references
            )
        return _found(not known, f"{count} references" if count else "")

    async def topic(self, name: str, wanted: TopicDefinition) -> Found:
        topics = self._client.topics
        partitions = await topics.partitions(name)
        if not partitions:
            if not self._is_dry:
                await topics.create(
                    name,
                    partitions=wanted.partitions,
                    reliable=wanted.reliable,
                    durability=wanted.durability,
                    ttl_s=wanted.ttl_s,
                )
                [first, *_] = await topics.partitions(name)
                await self._configure(name, await topics.describe(first), wanted)
            return Action.CREATED, ""
        described = await topics.describe(partitions[0])
        has_partitions = partitions != [name]
        count = len(partitions) if has_partitions else None
        if difference := _difference(described, count, wanted):
            return Action.FAILED, f"it cannot become as defined: {difference}"
        changes = []
        added = (wanted.partitions or 0) - (count or 0)
        if added:
            changes.append(f"{added} more partitions")
            if not self._is_dry:
                await topics.add_partitions(name, wanted.partitions or 0)
        changes += filter(None, [await self._configure(name, described, wanted)])
        return _found(False, ", ".join(changes))

    async def _configure(
        self, name: str, described: TopicDescription, wanted: TopicDefinition
    ) -> str:
        """Change the settings of a topic that differ, and return them."""
        old, is_reliable = described.settings, described.policy.is_reliable
        new = with_document(described, wanted.settings)
        if new != old and not self._is_dry:
            await self._client.topics.configure(name, **changes_of(old, new))
        return _changes(
            document_of(old, is_reliable=is_reliable),
            document_of(new, is_reliable=is_reliable),
        )

    async def subscription(
        self, topic: str, name: str, wanted: SubscriptionDefinition
    ) -> Found:
        try:
            return await self._subscription(topic, name, wanted)
        except Unavailable:
            # Some partitions may have it now.
            self._described.pop(topic, None)
            raise

    async def _describe(self, topic: str) -> list[TopicDescription]:
        """Describe the partitions of a topic, once for all of its subscriptions."""
        async with self._locks.of(topic):
            found = self._described.get(topic)
            if found is None:
                names = await self._client.topics.partitions(topic)
                found = await describe_all(self._client, names)
                self._described[topic] = found
                if len(self._described) > CONCURRENT_MAX:
                    self._described.popitem(last=False)
        return found

    async def _subscription(
        self, topic: str, name: str, wanted: SubscriptionDefinition
    ) -> Found:
        subscriptions = self._client.subscriptions
        described = await self._describe(topic)
        if not described:
            if self._is_dry:
                return Action.CREATED, ""
            return Action.FAILED, f"there is no topic {topic}"
        # An attempt may have ended between two partitions, and some may be new.
        known = {
            each.topic: one
            for each in described
            for one in each.subscriptions
            if one.subscription == name
        }
        for each in known.values():
            if each.type.value != wanted.type:
                return Action.FAILED, f"it is {each.type.value}, and not {wanted.type}"
        missing = [each.topic for each in described if each.topic not in known]
        old = [each.settings for each in known.values()]
        if missing:
            old.append(await subscriptions.settings(missing[0], name))
        changes: dict[str, Any] = {}
        shown: list[str] = []
        for before in old:
            after = with_subscription_document(before, wanted.settings)
            changes |= changes_of(before, after)
            shown.append(
                _changes(
                    subscription_document_of(before), subscription_document_of(after)
                )
            )
        if not self._is_dry:
            for partition in missing:
                await subscriptions.create(
                    partition,
                    name,
                    type=wanted.type,
                    # Consumers begin there, too, in partitions that were added.
                    start="earliest" if known else "latest",
                )
            if changes:
                await subscriptions.configure(topic, name, **changes)
        if known and missing:
            shown[-1] = f"in {len(missing)} more partitions"
        texts = dict.fromkeys(filter(None, reversed(shown)))
        return _found(not known, ", ".join(texts))

    async def role(self, name: str, wanted: RoleDefinition) -> Found:
        security = self._client.security
        known = {each.name: each for each in await security.roles()}.get(name)
        if known is not None and (
            {each.value for each in known.permissions},
            known.patterns,
        ) == (set(wanted.permissions), tuple(wanted.patterns)):
            return NOTHING
        if not self._is_dry:
            await security.set_role(name, wanted.permissions, wanted.patterns)
        return _found(known is None, ", ".join(wanted.permissions))

    async def binding(self, name: str, wanted: BindingDefinition) -> Found:
        security = self._client.security
        known = {each.id: each for each in await security.bindings()}.get(name)
        if known is not None and (known.member, known.roles, known.patterns) == (
            wanted.member,
            tuple(wanted.roles),
            tuple(wanted.patterns),
        ):
            return NOTHING
        if not self._is_dry:
            await security.add_binding(
                wanted.member, wanted.roles, wanted.patterns, binding_id=name
            )
        return _found(known is None, f"{wanted.member}: {', '.join(wanted.roles)}")

    async def connector(self, name: str, wanted: ConnectorDefinition) -> Found:
        connectors = self._client.connectors
        text = msgspec.json.encode(wanted.definition, order="sorted").decode()
        try:
            known = await connectors.describe(name)
        except NotFound:
            known = None
        old = None if known is None else msgspec.json.decode(known.definition)
        is_paused = known is not None and known.is_paused
        if not self._is_dry:
            if old != wanted.definition:
                topic = str(wanted.definition.get("topic"))
                await connectors.set(name, topic, text, is_paused=wanted.is_paused)
            elif is_paused is not wanted.is_paused:
                await (connectors.pause if wanted.is_paused else connectors.resume)(
                    name
                )
        changes = [] if old is None or old == wanted.definition else ["definition"]
        if is_paused is not wanted.is_paused:
            changes.append("paused" if wanted.is_paused else "resumed")
        return _found(known is None, ", ".join(changes))


async def _patiently(
    carry_out: Callable[[str, T], Awaitable[Found]], name: str, definition: T
) -> Found:
    """
    Carry out one thing, again after a failure that may pass, for ``RETRIED_S``.

    A broker that restarts, and a topic that moves, are such failures.  What was done
    before one is found to be there.
    """
    begun_at, delay_s = time.monotonic(), DELAY_S
    while True:
        try:
            return await carry_out(name, definition)
        except Unavailable:
            if time.monotonic() - begun_at > RETRIED_S:
                raise
        await asyncio.sleep(delay_s)
        delay_s = min(2 * delay_s, DELAY_S_MAX)


def _schema_of(definition: SchemaDefinition) -> Schema[Any]:
    type_ = parse_choice("type", definition.type, SchemaType)
    return Schema(type_, definition.definition, definition.message)


def _found(is_new: bool, changes: str) -> Found:
    if is_new:
        return Action.CREATED, changes
    return (Action.CHANGED, changes) if changes else NOTHING


def _changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    return ", ".join(
        f"{each.setting}: {summarize(each.old)} \u2192 {summarize(each.new)}"
        for each in changes_between(before, after)
    )


def _difference(
    described: TopicDescription, partitions: int | None, wanted: TopicDefinition
) -> str:
    """Return in what a topic differs that cannot change; empty: in nothing."""
    policy = described.policy
    pairs = {
        "reliable": (policy.is_reliable, wanted.reliable),
        "durability": (policy.durability.value, wanted.durability),
        "ttl_s": (policy.ttl_s, wanted.ttl_s),
        "with partitions": (partitions is not None, wanted.partitions is not None),
    }
    found = [
        f"{name} is {summarize(old)}, not {summarize(new)}"
        for name, (old, new) in pairs.items()
        if old != new
    ]
    if partitions and wanted.partitions and wanted.partitions < partitions:
        found.append(f"it has {partitions} partitions, not {wanted.partitions}")
    return ", ".join(found)
