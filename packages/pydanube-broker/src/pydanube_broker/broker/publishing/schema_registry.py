"""
The schema registry: subjects, their versions, and the schema ids in messages.

A subject has one schema id, from a counter that all brokers of a store share, and
versions that count from 1; ids and versions are never reused.  Every change is one
transaction that checks the subject's record, so several registries can use one store.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Container, Sequence
from functools import partial

from msgspec.structs import asdict, replace

from pydanube.aio.locks import NamedLocks
from pydanube.model.errors import (
    IncompatibleSchema,
    InvalidSchema,
    SchemaInUse,
    SchemaNotFound,
)
from pydanube.model.extras import MissingExtra
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import parse_subject
from pydanube.model.schemas import (
    Compatibility,
    ReferencedVersion,
    SchemaType,
    SchemaVersion,
    SubjectDescription,
)
from pydanube.schemas.compatibility import Direction, Violation, find_violations
from pydanube.schemas.language import Incompatibility
from pydanube.schemas.parsed_schema import ParsedSchema
from pydanube.schemas.parsing import parse_schema
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import SchemaVersionRecord, SubjectRecord
from pydanube_broker.metadata.store import (
    Comparison,
    Delete,
    MetadataStore,
    Operation,
    Put,
    Stored,
    retry_on_conflict,
    unchanged,
)

log = logging.getLogger(__name__)

PARSED_BYTES_MAX = 4 * 1024 * 1024
"""How long the definitions of the parsed schemas in memory may be together.  A parsed
schema takes several times as much memory as its definition."""
THREADS_MAX = 4
"""The maximum number of schemas that are parsed or compared at the same time."""
COMPARED_SECONDS_MAX = 30.0
"""A schema is refused if comparing it with older versions takes longer."""
VIOLATIONS_MAX = 1000
"""With more violations, a schema is not compared with further versions."""
VERSIONS_MAX = 10_000
"""The maximum number of versions of a subject."""
REASONS_MAX = 5
"""The maximum number of reasons in an error about an incompatible schema."""
TEXT_LENGTH_MAX = 10_000
"""The maximum length of the description, the creator, the tags and the names of
references of a version together."""
REFERENCES_MAX = 45
"""The most references of a schema; etcd bounds the operations of a transaction."""


DeletionCheck = Callable[[], Awaitable[None]]
"""Awaited before a deletion; raises if it is not allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchema:
    """A schema to be registered."""

    type: SchemaType
    definition: bytes | str
    message: str | None = None
    description: str = ""
    created_by: str = ""
    tags: Sequence[str] = ()
    references: Sequence[ReferencedVersion] = ()
    """The versions that must exist longer than this one; *definition* is complete
    without them."""


@dataclass(frozen=True, slots=True)
class PayloadEncoding:
    """The language of a version, and which message of its file a payload is."""

    type: SchemaType
    message_path: tuple[int, ...]
    """As in ``SchemaVersionRecord``."""


class SchemaRegistry:
    """
    The subjects of one metadata store.

    Schemas are parsed and compared in threads, or in other processes if that may take
    long.  Requests for one subject wait for each other, so a slow schema delays only
    its own subject.
    """

    def __init__(self, store: MetadataStore, wall_clock_us: Callable[[], int]) -> None:
        self._store = store
        self._wall_clock_us = wall_clock_us
        self._parsed: OrderedDict[tuple[int, int], ParsedSchema] = OrderedDict()
        self._parsed_bytes = 0
        self._threads = asyncio.Semaphore(THREADS_MAX)
        self.change_count = 0
        """How often this object has changed a subject or its versions."""
        self._locks: NamedLocks[str] = NamedLocks()
        """By subject, held while a schema is parsed and compared."""

    # Changes.

    async def register(
        self, subject: str, new: NewSchema
    ) -> tuple[SchemaVersion, bool]:
        """
        Register *new* as the latest version of *subject*, which is created if needed.

        Return the version, and whether it is new: a schema that the subject already has
        is not registered again, but gets the references that it lacks.

        Durability: On return the version is in the metadata store.

        Raises:
            InvalidName: The subject's name is not allowed.
            InvalidSchema: The definition is malformed.
            IncompatibleSchema: The schema is not compatible with existing versions.
            SchemaNotFound: A version that it refers to was deleted.
        """
        parse_subject(subject)
        _check_texts(new)
        _check_count(new.references)
        async with self._locks.of(subject):
            schema = await self._parse(new)
            found, is_new = await retry_on_conflict(
                partial(self._try_register, subject, new, schema)
            )
        if is_new:
            self.change_count += 1
            log.info("registered version %d of the schema %s", found.version, subject)
        return found, is_new

    async def set_compatibility(self, subject: str, mode: Compatibility) -> None:
        """
        Set the compatibility mode for later versions of *subject*.

        Raises:
            SchemaNotFound: The subject does not exist.
        """

        async def change(record: SubjectRecord) -> list[Operation]:
            return [Put(keys.subject(subject), replace(record, compatibility=mode))]

        await self._change(subject, change)
        log.info("set the compatibility mode of the schema %s: %s", subject, mode.value)

    async def delete(
        self,
        subject: str,
        version: int | None = None,
        *,
        keep_readable: bool = False,
        check_unused: DeletionCheck | None = None,
    ) -> None:
        """
        Delete one version of *subject*, or the subject with all its versions.

        Their numbers and ids are not reused.  With *keep_readable*, readers of messages
        still find the definitions by their numbers, until they are deleted without it.
        *check_unused* raises if the version or subject is in use.  New uses change the
        subject's record, so the transaction notices uses that begin after the check.

        Raises:
            SchemaNotFound: The subject or version does not exist.
            SchemaInUse: Other schemas refer to it, and *check_unused* is given.  Those
                that are deleted, but still readable, count only if *keep_readable* is
                false.
        """

        async def change(record: SubjectRecord) -> list[Operation]:
            kept = await self._kept(record)
            deletable = record.versions if keep_readable else tuple(kept)
            if version is not None and version not in deletable:
                raise _no_version(subject, version)
            key = keys.subject(subject)
            deleted = deletable if version is None else (version,)
            if check_unused is not None:
                await check_unused()
                await self._check_unreferenced(
                    subject,
                    record.schema_id,
                    deleted,
                    include_deleted=not keep_readable,
                )
            left = tuple(each for each in record.versions if each not in deleted)
            changed = Put(key, replace(record, versions=left))
            if keep_readable:
                return [changed]
            operations: list[Operation] = [
                Put(keys.schema_version(record.schema_id, each), _emptied(kept[each]))
                for each in deleted
            ]
            if version is None:
                number = keys.SCHEMA_IDS.key(record.schema_id)
                return [Delete(key), Delete(number), *operations]
            return [changed, *operations]

        await self._change(subject, change)

    # Queries.

    async def readable_versions(self, subject: str) -> list[int]:
        """
        Return the versions that have definitions, in order, also deleted ones.

        Raises:
            SchemaNotFound: The subject does not exist.
        """
        return list(await self._kept((await self._subject(subject)).value))

    async def encoding(self, schema_id: int, version: int) -> PayloadEncoding | None:
        """Return how payloads of a version are written, also if it was deleted."""
        stored = await self._store.get(keys.schema_version(schema_id, version))
        if stored is None:
            return None
        return PayloadEncoding(stored.value.type, stored.value.message_path)

    async def used_subjects(self) -> list[str]:
        """Return the names of the subjects that have a version, in order."""
        return [
            keys.SUBJECTS.name_of(path)
            for path, each in await self._store.scan(keys.SUBJECTS)
            if each.value.versions
        ]

    async def subjects(self) -> list[str]:
        """Return the names of all subjects, in order."""
        paths = await self._store.paths(keys.SUBJECTS)
        return [keys.SUBJECTS.name_of(path) for path in paths]

    async def describe(self, subject: str) -> SubjectDescription:
        """
        Describe a subject.

        Raises:
            SchemaNotFound: The subject does not exist.
        """
        record = (await self._subject(subject)).value
        tags: tuple[str, ...] = ()
        if record.versions:
            tags = (await self._version(subject, record, record.versions[-1])).tags
        return SubjectDescription(
            subject=subject,
            schema_id=record.schema_id,
            type=record.type,
            compatibility=record.compatibility,
            versions=record.versions,
            tags=tags,
        )

    async def version(self, subject: str, version: int | None = None) -> SchemaVersion:
        """
        Return one version of *subject*, by default the latest.

        Raises:
            SchemaNotFound: The subject or version does not exist, or all its versions
                are deleted.
        """
        record = (await self._subject(subject)).value
        if version is None:
            if not record.versions:
                raise SchemaNotFound(f"Schema not found for subject: {subject}")
            version = record.versions[-1]
        return await self._version(subject, record, version)

    async def versions(self, subject: str) -> list[SchemaVersion]:
        """
        Return all versions of *subject*, in order.

        Raises:
            SchemaNotFound: The subject does not exist.
        """
        stored = await self._store.get(keys.subject(subject))
        if stored is None:
            raise SchemaNotFound(f"Subject not found: {subject}")
        return await self._versions(subject, stored.value)

    async def by_id(self, schema_id: int, version: int | None = None) -> SchemaVersion:
        """
        Return one version, by default the latest, of the subject with this id.

        Raises:
            SchemaNotFound: The subject or version does not exist.
        """
        return await self.version(await self.subject_of(schema_id), version)

    async def subject_of(self, schema_id: int) -> str:
        """
        Return the subject with this id.

        Raises:
            SchemaNotFound: It does not exist.
        """
        stored = await self._store.get(keys.SCHEMA_IDS.key(schema_id))
        if stored is None:
            raise SchemaNotFound(f"Schema not found for ID: {schema_id}")
        return stored.value

    async def references_to(
        self, schema_id: int, version: int, *, include_deleted: bool = False
    ) -> list[SchemaVersion]:
        """
        Return the versions that refer to a version, in order of their ids.

        With *include_deleted*, they include those that are deleted and still readable.
        """
        prefix = keys.SCHEMA_REFERENCES.within(schema_id).within(version)
        found = []
        for path in sorted(await self._store.paths(prefix)):
            user_id, user_version = map(int, prefix.name_of(path).split("/"))
            try:
                user = await self.by_id(user_id, user_version)
            except SchemaNotFound:
                continue
            record = (await self._subject(user.subject)).value
            if include_deleted or user_version in record.versions:
                found.append(user)
        return sorted(found, key=lambda each: (each.schema_id, each.version))

    async def find(
        self, subject: str, new: NewSchema, versions: Container[int]
    ) -> SchemaVersion | None:
        """
        Return the one of *versions* of *subject* that has the schema *new*, if any.

        Raises:
            SchemaNotFound: The subject does not exist.
            InvalidSchema: The definition is malformed.
        """
        record = (await self._subject(subject)).value
        schema = await self._parse(new)
        return await self._find_same(subject, record, schema, versions)

    async def check(
        self,
        subject: str,
        new: NewSchema,
        mode: Compatibility | None = None,
        *,
        version: int | None = None,
    ) -> list[Violation]:
        """
        Return why *new* is not compatible with *subject*; an empty list if it is.

        Args:
            subject: An existing subject.
            new: The schema to check.
            mode: Replaces the compatibility mode of the subject.
            version: The only version to compare with.

        Raises:
            SchemaNotFound: The subject does not exist.
            InvalidSchema: The definition is malformed.
        """
        record = (await self._subject(subject)).value
        async with self._locks.of(subject):
            schema = await self._parse(new)
            if version is not None:
                record = replace(record, versions=(version,))
            return await self._violations(
                subject, record, schema, mode or record.compatibility
            )

    async def schema(self, found: SchemaVersion) -> ParsedSchema:
        """
        Return the parsed schema of a version, from memory if it was used recently.
        """
        key = (found.schema_id, found.version)
        schema = self._parsed.get(key)
        if schema is None:
            schema = await self._parse(found)
            # Another request may have parsed it in the meantime.
            if key not in self._parsed:
                self._parsed_bytes += len(schema.text)
            self._parsed[key] = schema
            while self._parsed_bytes > PARSED_BYTES_MAX:
                _, oldest = self._parsed.popitem(last=False)
                self._parsed_bytes -= len(oldest.text)
        else:
            self._parsed.move_to_end(key)
        return schema

    # Implementation.

    async def _try_register(
        self, subject: str, new: NewSchema, schema: ParsedSchema
    ) -> tuple[SchemaVersion, bool]:
        key = keys.subject(subject)
        stored = await self._store.get(key)
        conditions: list[Comparison] = [unchanged(key, stored)]
        operations: list[Operation] = []
        used = await self._use(subject, new.references, conditions, operations)
        if stored is None:
            last = await self._store.get(keys.LAST_SCHEMA_ID)
            schema_id = 1 if last is None else last.value + 1
            record = SubjectRecord(
                schema_id=schema_id,
                type=schema.type,
                compatibility=Compatibility.BACKWARD,
                created_at=self._wall_clock_us(),
                last_version=0,
                versions=(),
            )
            conditions.append(unchanged(keys.LAST_SCHEMA_ID, last))
            operations.append(Put(keys.LAST_SCHEMA_ID, schema_id))
            operations.append(Put(keys.SCHEMA_IDS.key(schema_id), subject))
        else:
            record = stored.value
            known = await self._find_same(subject, record, schema, record.versions)
            if known is not None:
                return await self._refer(known, new, used, conditions, operations)
            await self._check_addition(subject, record, schema)
        version = record.last_version + 1
        record = replace(
            record,
            type=schema.type,
            last_version=version,
            versions=(*record.versions, version),
        )
        written = SchemaVersionRecord(
            type=schema.type,
            definition=schema.text,
            message=new.message,
            message_path=schema.message_path,
            fingerprint=schema.fingerprint,
            description=new.description,
            created_at=self._wall_clock_us(),
            created_by=new.created_by,
            tags=tuple(new.tags),
            references=tuple(dict.fromkeys(new.references)),
        )
        found = _version_of(subject, record, version, written)
        operations.append(Put(key, record))
        operations.append(Put(keys.schema_version(record.schema_id, version), written))
        operations += _references_of(found, used)
        await self._store.transaction(conditions, operations)
        return found, True

    async def _refer(
        self,
        known: SchemaVersion,
        new: NewSchema,
        used: dict[tuple[int, int], str],
        conditions: list[Comparison],
        operations: list[Operation],
    ) -> tuple[SchemaVersion, bool]:
        """Let a version that exists refer to what *new* refers to."""
        if set(new.references) <= set(known.references):
            return known, False
        key = keys.schema_version(known.schema_id, known.version)
        stored = await self._store.get(key)
        if stored is None or stored.value.is_deleted:
            raise _no_version(known.subject, known.version)
        # Another broker may have added some meanwhile.
        references = tuple(dict.fromkeys((*stored.value.references, *new.references)))
        _check_count(references)
        conditions.append(unchanged(key, stored))
        operations.append(Put(key, replace(stored.value, references=references)))
        operations += _references_of(known, used)
        await self._store.transaction(conditions, operations)
        return dataclasses.replace(known, references=references), False

    async def _use(
        self,
        subject: str,
        references: Sequence[ReferencedVersion],
        conditions: list[Comparison],
        operations: list[Operation],
    ) -> dict[tuple[int, int], str]:
        """Return the names of references by the id and the version they refer to."""
        found: dict[tuple[int, int], str] = {}
        changed = {subject}
        for each in references:
            stored = await self._subject(each.subject)
            if each.version not in stored.value.versions:
                raise _no_version(each.subject, each.version)
            found[stored.value.schema_id, each.version] = each.name
            if each.subject not in changed:
                # It is written again, so that a deletion at the same time fails.
                changed.add(each.subject)
                key = keys.subject(each.subject)
                conditions.append(unchanged(key, stored))
                operations.append(Put(key, stored.value))
        return found

    async def _check_unreferenced(
        self,
        subject: str,
        schema_id: int,
        versions: Sequence[int],
        *,
        include_deleted: bool,
    ) -> None:
        for version in versions:
            users = [
                each
                for each in await self.references_to(
                    schema_id, version, include_deleted=include_deleted
                )
                if each.schema_id != schema_id or each.version not in versions
            ]
            if users:
                raise SchemaInUse(
                    f"{len(users)} schemas refer to version {version} of the schema "
                    f"subject '{subject}': delete them first"
                )

    async def _check_addition(
        self, subject: str, record: SubjectRecord, schema: ParsedSchema
    ) -> None:
        violations = await self._violations(
            subject, record, schema, record.compatibility
        )
        if violations:
            raise IncompatibleSchema(_error_text(subject, record, violations))
        if record.last_version >= VERSIONS_MAX:
            raise InvalidSchema(
                f"{subject} already has the maximum of {VERSIONS_MAX} versions"
            )

    async def _find_same(
        self,
        subject: str,
        record: SubjectRecord,
        schema: ParsedSchema,
        versions: Container[int],
    ) -> SchemaVersion | None:
        for version, found in reversed((await self._kept(record)).items()):
            is_same = (found.type, found.fingerprint) == (
                schema.type,
                schema.fingerprint,
            )
            if is_same and version in versions:
                return _version_of(subject, record, version, found)
        return None

    async def _violations(
        self,
        subject: str,
        record: SubjectRecord,
        new: ParsedSchema,
        mode: Compatibility,
    ) -> list[Violation]:
        if mode is Compatibility.NONE or not record.versions:
            return []
        wanted = record.versions if mode.is_transitive else record.versions[-1:]
        clock, seconds = asyncio.get_running_loop().time, 0.0
        violations: list[Violation] = []
        for version in reversed(wanted):
            found = await self._version(subject, record, version)
            old = await self.schema(found)
            async with self._threads:
                began = clock()
                violations += await asyncio.to_thread(
                    find_violations, mode, new, version, old
                )
                seconds += clock() - began
            if seconds > COMPARED_SECONDS_MAX and version != wanted[0]:
                return [*violations, _timeout_violation(version)]
            if len(violations) > VIOLATIONS_MAX:
                break
        return violations

    async def _change(
        self,
        subject: str,
        change: Callable[[SubjectRecord], Awaitable[list[Operation]]],
    ) -> None:
        """Write what *change* returns for the subject's record, in one transaction."""

        async def attempt() -> None:
            stored = await self._subject(subject)
            condition = unchanged(keys.subject(subject), stored)
            await self._store.transaction([condition], await change(stored.value))

        await retry_on_conflict(attempt)
        self.change_count += 1

    async def _subject(self, subject: str) -> Stored[SubjectRecord]:
        stored = await self._store.get(keys.subject(subject))
        if stored is None:
            raise SchemaNotFound(f"Schema not found for subject: {subject}")
        return stored

    async def _versions(
        self, subject: str, record: SubjectRecord
    ) -> list[SchemaVersion]:
        return [
            _version_of(subject, record, version, written)
            for version, written in (await self._kept(record)).items()
            if version in record.versions
        ]

    async def _kept(self, record: SubjectRecord) -> dict[int, SchemaVersionRecord]:
        """Return the versions of a subject that have definitions, in order."""
        prefix = keys.SCHEMA_VERSIONS.within(record.schema_id)
        return {
            int(prefix.name_of(path)): each.value
            for path, each in await self._store.scan(prefix)
            if not each.value.is_deleted
        }

    async def _version(
        self, subject: str, record: SubjectRecord, version: int
    ) -> SchemaVersion:
        stored = await self._store.get(keys.schema_version(record.schema_id, version))
        if stored is None or stored.value.is_deleted:
            raise _no_version(subject, version)
        return _version_of(subject, record, version, stored.value)

    async def _parse(self, new: NewSchema | SchemaVersion) -> ParsedSchema:
        async with self._threads:
            try:
                return await asyncio.to_thread(
                    parse_schema, new.type, new.definition, message=new.message
                )
            except MissingExtra as missing:
                raise InvalidSchema(
                    f"the broker cannot read the schema: {missing}; then start it again"
                ) from missing


def _version_of(
    subject: str, record: SubjectRecord, version: int, written: SchemaVersionRecord
) -> SchemaVersion:
    fields = asdict(written)
    del fields["message_path"], fields["is_deleted"]
    return SchemaVersion(
        subject=subject, schema_id=record.schema_id, version=version, **fields
    )


def _emptied(written: SchemaVersionRecord) -> SchemaVersionRecord:
    """Return what is left of a deleted version: how its payloads are written."""
    return replace(
        written,
        definition="",
        message=None,
        fingerprint="",
        description="",
        created_by="",
        tags=(),
        references=(),
        is_deleted=True,
    )


def _timeout_violation(version: int) -> Violation:
    return Violation(
        version=version,
        direction=Direction.BACKWARD,
        incompatibility=Incompatibility(
            path="/",
            rule="too_complex",
            text="the comparison with this and later versions took more than "
            f"{COMPARED_SECONDS_MAX:g} s, so older ones were not compared",
        ),
    )


def _no_version(subject: str, version: int) -> SchemaNotFound:
    return SchemaNotFound(f"Schema not found: {subject} has no version {version}")


def _error_text(
    subject: str, record: SubjectRecord, violations: Sequence[Violation]
) -> str:
    mode = record.compatibility.value.title().replace("_", "")
    said = "; ".join(str(each) for each in violations[:REASONS_MAX])
    more = len(violations) - REASONS_MAX
    return (
        f"Schema is not compatible with subject '{subject}' (mode: {mode}): {said}"
        + (f"; and {more} more" if more > 0 else "")
    )


def _references_of(
    version: SchemaVersion, used: dict[tuple[int, int], str]
) -> list[Operation]:
    """Return the operations that note what a version refers to."""
    user = version.schema_id, version.version
    return [
        Put(keys.SCHEMA_REFERENCES.key(*each, *user), name)
        for each, name in used.items()
    ]


def _check_texts(new: NewSchema) -> None:
    texts = [new.description, new.created_by, *new.tags]
    texts += [each.name for each in new.references]
    if sum(map(len, texts)) > TEXT_LENGTH_MAX:
        raise InvalidSchema(
            "description, creator, tags and names of references are longer than "
            f"{TEXT_LENGTH_MAX} characters together"
        )


def _check_count(references: Sequence[ReferencedVersion]) -> None:
    if len(references) > REFERENCES_MAX:
        raise InvalidSchema(f"a schema has at most {REFERENCES_MAX} references")
