"""The operations of a client on topics and their partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Literal, TypeAlias, Unpack

from pydanube.aio.tasks import gather
from pydanube.client.connections.owner_requests import PAGE, ask_owners
from pydanube.client.connections.partitions import (
    check_partitions,
    create_topic,
    existing_partitions,
    find_partitions,
    one_partition,
)
from pydanube.client.connections.requester import Requester, retry
from pydanube.client.operations.changes import (
    TopicChanges,
    changes_of,
    settings_of,
)
from pydanube.model.arguments import checks_arguments
from pydanube.model.choices import CorruptionPolicyName, DurabilityName
from pydanube.model.descriptions import (
    OffsetChanges,
    RetentionDrops,
    TopicDescription,
    TopicOffsets,
    TopicPlace,
    TopicSettings,
)
from pydanube.model.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    ProtocolViolation,
    SubscriptionInUse,
    TopicHeld,
    TopicNotFound,
    Unavailable,
)
from pydanube.model.names import TopicName, parse_namespace
from pydanube.model.policy import (
    CorruptionPolicy,
    Deduplication,
    DispatchMode,
    Durability,
    Retention,
    TopicPolicy,
)
from pydanube.model.positions import (
    PositionLike,
    parse_choice,
    to_microseconds,
    to_position,
)
from pydanube.wire.native.messages import from_wire, position_to_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb

Names: TypeAlias = list[str]
Revisions: TypeAlias = Mapping[str, tuple[str, int]]
Pages: TypeAlias = list[pb.Topics]
Drops: TypeAlias = list[RetentionDrops]
Offsets: TypeAlias = list[int | None]
ExistOk: TypeAlias = bool | Literal["configure"]


@checks_arguments
class Topics:
    """The topics of a broker or of its cluster; ``Client.topics``."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    async def list(self, namespace: str | None = None) -> Names:
        """Return the names of all topics and partitions, or those of *namespace*."""
        pages = await self._pages(namespace, has_places=False)
        return [name for page in pages for name in page.topics]

    async def places(self, namespace: str | None = None) -> dict[str, TopicPlace]:
        """
        Return which broker serves each topic and partition, or those of *namespace*.

        Topics that no broker serves at the moment have an empty ``broker_id``.
        """
        return {
            name: from_wire(TopicPlace, place)
            for page in await self._pages(namespace, has_places=True)
            for name, place in zip(page.topics, page.places, strict=True)
        }

    async def _pages(self, namespace: str | None, *, has_places: bool) -> Pages:
        pages: Pages = []
        while not pages or pages[-1].has_more:
            message = pb.ListTopics(
                namespace=parse_namespace(namespace) if namespace else "",
                after=pages[-1].topics[-1] if pages else "",
                limit=PAGE,
                has_places=has_places,
            )
            pages.append(await self._requester.send_request(message))
        return pages

    async def configure(self, topic: str, **changes: Unpack[TopicChanges]) -> None:
        """
        Change several settings of *topic*, all or none; the others keep their values.

        The name of a partitioned topic stands for all partitions, also for later ones.
        All settings of all partitions change together.  Of concurrent changes of a
        setting, the last one wins.

        Args:
            topic: A topic, or a partitioned topic.
            changes: The settings, as in ``configure(topic,
                retention=Retention(age_s=86_400), on_corruption="skip")``.  None as
                limits or retention stands for those of the namespace, as
                ``seal_bytes`` or ``seal_age_s`` for those of the broker's settings, as
                ``deduplication`` for no deduplication, and as ``schema`` for no schema.

        Durability: On return the changes are on disk and in effect; the next retention
            pass applies a changed retention.

        Raises:
            TopicNotFound: There is no such topic.
            SchemaNotFound: There is no such subject or version.
            InvalidRequest: A value is out of range or needs a reliable topic, or no
                setting is given.
        """
        settings = settings_of(TopicSettings, changes)
        settings.check()
        message = pb.ConfigureTopic(
            settings=to_wire(pb.TopicSettings, settings), changes=list(changes)
        )
        await self._requester.request_topic(topic, message)

    async def create(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        reliable: bool = True,
        durability: DurabilityName = "durable",
        ttl_s: float | None = None,
        retention: Retention | None = None,
        on_corruption: CorruptionPolicyName = "stop",
        seal_bytes: int | None = None,
        seal_age_s: float | None = None,
        deduplication: Deduplication | None = None,
        exist_ok: ExistOk = False,
    ) -> None:
        """
        Create *topic*.

        Args:
            topic: ``/{namespace}/{topic}``.
            partitions: Create a partitioned topic with this number of partitions,
                ``{topic}-part-0``, ``{topic}-part-1`` …; producers and consumers
                of *topic* use all of them.
            reliable: Store the messages on disk, or deliver them from memory only.
            durability: When a message is acknowledged: ``"durable"``: it is on disk;
                ``"written"``: it is written to the operating system.
            ttl_s: Deliver no older messages; None: deliver all.
            retention: Which messages to drop; None: as its namespace says.  This and
                the following settings can change later; see ``topics.configure``.
            on_corruption: What subscriptions do if a segment cannot be read:
                ``"stop"`` with an error, or ``"skip"`` its messages.
            seal_bytes: The size before compression at which messages are sealed as a
                segment; None: the broker's setting ``storage.seal_bytes``.
            seal_age_s: The age at which messages are sealed even if the segment is
                small; None: the broker's setting ``storage.seal_age_s``.
            deduplication: Do not store a message whose id is that of a message in
                this window; None: refuse messages with ids.
            exist_ok: Accept a topic that exists with the settings that are given;
                those that can change later and are left out may differ.
                ``"configure"`` changes them to those that are given.

        Raises:
            AlreadyExists: The topic exists, or it has other settings.
            NamespaceNotFound: The namespace of the topic does not exist.
        """
        if ttl_s is not None and ttl_s <= 0:
            raise InvalidRequest(f"ttl_s is {ttl_s}: it must be more than 0, or None")
        policy = TopicPolicy(
            dispatch=DispatchMode.RELIABLE if reliable else DispatchMode.NON_RELIABLE,
            durability=parse_choice("durability", durability, Durability),
            retention=retention,
            ttl_s=ttl_s,
            on_corruption=parse_choice(
                "on_corruption", on_corruption, CorruptionPolicy
            ),
            seal_bytes=seal_bytes,
            seal_age_s=seal_age_s,
            deduplication=deduplication,
        )
        policy.check()
        await create_topic(
            self._requester, topic, policy, partitions, exist_ok=bool(exist_ok)
        )
        given = changes_of(TopicSettings(), TopicSettings.of(policy))
        # A topic that exists may differ in the settings that can change.
        if not exist_ok or not given:
            return
        first, *_ = await existing_partitions(self._requester, topic)
        found = (await self.describe(first)).settings
        wanted = {name: getattr(policy, name) for name in given}
        missing = changes_of(found, replace(found, **wanted))
        if not missing:
            return
        if exist_ok != "configure":
            raise AlreadyExists(
                f"the topic {topic} exists with other settings: {', '.join(missing)}; "
                "client.topics.configure or 'danube topics configure' changes them"
            )
        await self.configure(topic, **missing)

    async def delete(self, topic: str, *, force: bool = False) -> None:
        """
        Delete *topic*, with all its partitions, messages and subscriptions.

        In a cluster, the partitions may have several owners.  Without *force*, each
        owner is asked whether its partition may be deleted, before all are deleted at
        once; clients that connect in between lose the topic.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: It is one partition of several.
            SubscriptionInUse: It has producers or consumers, and *force* is false.
            TopicHeld: It has a retention hold, and *force* is false.
        """
        if not force and (await self._requester.connection()).welcome.is_clustered:
            found = await find_partitions(self._requester, topic)
            if found.is_partitioned:
                for partition in found.topics:
                    await self._check_deletable(partition)
                force = True
        await self._requester.request_topic(topic, pb.DeleteTopic(force=force))

    async def _check_deletable(self, topic: str) -> None:
        """
        Ask the owner of *topic* whether it may be deleted without force.

        Raises:
            SubscriptionInUse: It has producers or consumers.
            TopicHeld: It has a retention hold.
        """
        described = await self.describe(topic)
        if described.producers or any(
            each.consumers for each in described.subscriptions
        ):
            raise SubscriptionInUse(
                f"{topic} has producers or consumers; disconnect them or force the "
                "deletion"
            )
        if described.holds:
            holds = ", ".join(each.name for each in described.holds)
            raise TopicHeld(
                f"{topic} is held by {holds}; release it first, or force the deletion"
            )

    async def describe(self, topic: str) -> TopicDescription:
        """
        Describe a topic, or one partition.

        Raises:
            TopicNotFound: There is no such topic, or it is partitioned: name one
                partition.
        """
        first = 0
        described: TopicDescription | None = None
        while True:
            message = pb.DescribeTopic(limit=PAGE, first=first)
            answer = await self._requester.request_topic(topic, message)
            page = from_wire(TopicDescription, answer)
            if described is not None:
                page = replace(
                    page,
                    producers=described.producers + page.producers,
                    subscriptions=described.subscriptions + page.subscriptions,
                )
            if not answer.has_more:
                return page
            described, first = page, first + PAGE

    async def list_offsets(self, topics: Iterable[str]) -> dict[str, TopicOffsets]:
        """
        Return the offsets of topics and partitions, with few requests.

        Those that do not exist are left out, and so are names of partitioned topics.

        Raises:
            InvalidRequest: The broker is older than this operation.
        """
        names = [str(TopicName.parse(topic)) for topic in topics]
        return await retry(partial(self._list_offsets, names), self._requester.retry_s)

    async def _list_offsets(self, names: Names) -> dict[str, TopicOffsets]:
        answers = await ask_owners(
            self._requester, names, lambda some: pb.ListOffsets(topics=some)
        )
        return await self._offsets_in(names, [answer for _, answer in answers])

    async def _offsets_in(
        self, names: Names, answers: Iterable[pb.OffsetsListed]
    ) -> dict[str, TopicOffsets]:
        """Return the offsets in *answers*, after asking for what is in none of them."""
        found = _changes_in(answers)
        for name in names:
            if name not in found:
                # It does not exist, or no broker serves it at the moment.
                self._requester.owners.forget(name)
                with suppress(TopicNotFound):
                    found[name] = _offsets_of(await self.describe(name))
        return {name: found[name] for name in names if name in found}

    async def list_changed_offsets(
        self, topics: Set[str], since: Revisions | None = None
    ) -> OffsetChanges:
        """
        Return the offsets of those of *topics* that have changed.

        Brokers remember which topics have changed, so a call costs as much as the
        changes.  Without *since*, or if a broker does not know all changes, or topics
        are gone or have moved, the answer has all topics as ``list_offsets`` does.

        Args:
            topics: The same topics and partitions in each call, such as the keys of a
                dictionary.
            since: The ``revisions`` of the last answer.
        """
        if since:
            changed = await self._find_changes(since)
            if changed is not None:
                found = {
                    name: each
                    for name, each in changed.topics.items()
                    if name in topics
                }
                return replace(changed, topics=found)
        names = [str(TopicName.parse(topic)) for topic in topics]
        return await retry(
            partial(self._list_all_offsets, names), self._requester.retry_s
        )

    async def _find_changes(self, since: Revisions) -> OffsetChanges | None:
        """Return what has changed on all brokers; None: look at all topics."""
        requests = {
            url: pb.ListOffsets(since=pb.OffsetsRevision(run=run, revision=revision))
            for url, (run, revision) in since.items()
        }
        try:
            answers = await gather(
                self._requester.request_of(url, each) for url, each in requests.items()
            )
        except Unavailable:
            # Another broker may serve the topics now.
            return None
        if any(each.is_partial for each in answers):
            return None
        found = zip(since, answers, strict=True)
        return OffsetChanges(
            topics=_changes_in(answers),
            is_complete=False,
            revisions={url: _revision_of(each) for url, each in found},
        )

    async def _list_all_offsets(self, names: Names) -> OffsetChanges:
        answers = await ask_owners(
            self._requester, names, lambda some: pb.ListOffsets(topics=some)
        )
        revisions: dict[str, tuple[str, int]] = {}
        for url, answer in answers:
            revision = _revision_of(answer)
            revisions[url] = earlier(revisions.get(url, revision), revision)
        topics = await self._offsets_in(names, [answer for _, answer in answers])
        if len(topics) < len(names):
            # Another broker may serve the others once they exist.
            revisions = {}
        return OffsetChanges(topics=topics, is_complete=True, revisions=revisions)

    async def hold(
        self,
        topic: str,
        name: str,
        reason: str = "",
        *,
        expires_in_s: float | None = None,
    ) -> None:
        """
        Put a retention hold on *topic*, or on each of its partitions.

        Until ``release``, retention and maintenance do not change the segments,
        and the topic cannot be deleted without force.  List the segments after this,
        not before.  A hold with the same *name* changes its reason and expiry.

        With *expires_in_s*, the broker also releases the hold at some time after that,
        in case the reader is gone; readers that need it longer hold again.

        Durability: On return the hold is on disk.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The topic is not reliable, or it has too many holds.
        """
        for each in await existing_partitions(self._requester, topic):
            message = pb.HoldTopic(name=name, reason=reason)
            if expires_in_s is not None:
                message.expires_in_s = expires_in_s
            await self._requester.request_topic(each, message)

    async def release(self, topic: str, name: str) -> None:
        """
        End the hold *name* on *topic*, or on each of its partitions.

        Raises:
            TopicNotFound: There is no such topic.
            NotFound: There is no such hold, on none of the partitions.
        """
        missing: list[NotFound] = []
        topics = await existing_partitions(self._requester, topic)
        for each in topics:
            try:
                await self._requester.request_topic(each, pb.ReleaseTopic(name=name))
            except TopicNotFound:
                raise
            except NotFound as error:
                missing.append(error)
        if len(missing) == len(topics):
            raise missing[0]

    async def find_offsets(
        self, topic: str, times: Sequence[datetime | float]
    ) -> Offsets:
        """
        Find the offset of *topic* at each of *times*, datetimes or seconds since 1970.

        This is the lowest offset of a message that was published then or later, or
        None if there is no such message yet.  The clocks of producers set the publish
        times, so these need not rise with the offsets.

        Raises:
            TopicNotFound: There is no such topic, or it is partitioned: name one
                partition.
            InvalidRequest: The topic is not reliable, a time is invalid, or there
                are more than a thousand times.
        """
        message = pb.FindOffsets(
            publish_time=[to_microseconds(time) for time in times],
        )
        answer = await self._requester.request_topic(topic, message)
        if len(answer.offset) != len(times):
            raise ProtocolViolation(
                f"the broker answered {len(times)} times with {len(answer.offset)} "
                "offsets"
            )
        return [
            offset if offset < answer.end_offset else None for offset in answer.offset
        ]

    # Retention.

    async def apply_retention(self, topic: str) -> Drops:
        """
        Drop what the retention of *topic* does not keep, now; return what was dropped.

        For a partitioned topic there is one result for each partition, by number.

        Durability: On return the segments are dropped for good; their objects are
            deleted soon.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The topic is not reliable.
            BackupRunning: A backup is being made, which needs all segments.
        """
        return [
            await drops_of(self._requester, name, pb.ApplyRetention())
            for name in await existing_partitions(self._requester, topic)
        ]

    async def plan_retention(
        self,
        topic: str,
        retention: Retention | None = None,
        *,
        inherits: bool = False,
        of_namespace: Retention | None = None,
    ) -> Drops:
        """
        Return what ``apply_retention`` would drop from *topic* now; drop nothing.

        Args:
            topic: A topic, or a partitioned topic, as for ``apply_retention``.
            retention: The retention to assume for the topic; None: its own.
            inherits: Assume that the topic has no retention of its own.
            of_namespace: The retention to assume for its namespace; None: its own.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The topic is not reliable, or a limit is out of range.
        """
        for each in (retention, of_namespace):
            if each is not None:
                each.check()
        message = pb.ApplyRetention(
            is_dry_run=True,
            retention=to_wire(pb.Retention, retention),
            namespace_retention=to_wire(pb.Retention, of_namespace),
            inherits=inherits,
        )
        return [
            await drops_of(self._requester, name, message)
            for name in await existing_partitions(self._requester, topic)
        ]

    async def trim(self, topic: str, before: PositionLike) -> Drops:
        """
        Remove the messages of *topic* before a position, for all readers at once.

        *before* is an offset, a time, or ``"latest"``, which removes all messages.
        Subscriptions that were behind continue there.  Segments with later messages
        keep their files until these are removed, too, and holds keep all files.

        For a partitioned topic there is one result for each partition, by number.

        Durability: On return the start of the topic is on disk, for good.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The topic is not reliable, has no such offset yet, or has
                several partitions, and an offset needs one.
        """
        position = to_position(before)
        message = pb.TrimTopic(before=position_to_wire(position, pb.Position))
        if isinstance(position, int):
            names = [await one_partition(self._requester, topic, "an offset")]
        else:
            names = await existing_partitions(self._requester, topic)
        return [await drops_of(self._requester, name, message) for name in names]

    # Partitions.

    async def add_partitions(self, topic: str, partitions: int) -> None:
        """
        Add partitions to *topic*, so that it has *partitions* in total.

        Existing messages stay in their partitions.  New messages of a key may go to
        another partition than before.

        Raises:
            InvalidRequest: The topic has as many partitions or more.
            TopicNotFound: There is no partitioned topic of this name.
        """
        check_partitions(partitions)
        await self._requester.request_topic(
            topic, pb.AddPartitions(partitions=partitions)
        )

    async def existing_partitions(self, topic: str) -> Names:
        """
        Return the partitions of *topic*, at least one, as ``partitions`` does.

        Raises:
            TopicNotFound: There is no such topic.
        """
        return await existing_partitions(self._requester, topic)

    async def partitions(self, topic: str) -> Names:
        """
        Return the partitions of *topic*, by number.

        For a topic without partitions this is the topic; empty if there is no topic.
        """
        return list((await find_partitions(self._requester, topic)).topics)


async def drops_of(
    requester: Requester, topic: str, message: pb.ApplyRetention | pb.TrimTopic
) -> RetentionDrops:
    """Return what is dropped, or would be, from one topic or partition."""
    return from_wire(RetentionDrops, await requester.request_topic(topic, message))


def _changes_in(answers: Iterable[pb.OffsetsListed]) -> dict[str, TopicOffsets]:
    return {
        each.topic: from_wire(TopicOffsets, each)
        for answer in answers
        for each in answer.topics
    }


def earlier(one: tuple[str, int], other: tuple[str, int]) -> tuple[str, int]:
    """
    Return the revision from which the changes since two pages of a broker are known.

    Topics may change between the pages.  If the broker has started again between them,
    no revision covers both: the result is one that no broker knows, so that the next
    request lists all topics.
    """
    return min(one, other) if one[0] == other[0] else ("", 0)


def _revision_of(answer: pb.OffsetsListed) -> tuple[str, int]:
    return answer.revision.run, answer.revision.revision


def _offsets_of(facts: TopicDescription) -> TopicOffsets:
    return TopicOffsets(
        topic_id=facts.topic_id,
        base_offset=facts.base_offset,
        end_offset=facts.end_offset,
        sealed_offset=facts.sealed_offset,
        tail_bytes=facts.tail_bytes,
        is_reliable=facts.policy.is_reliable,
    )
