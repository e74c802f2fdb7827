"""The operations of a client on topics and their partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias, Unpack

from pydanube.aio.tasks import gather
from pydanube.client.changes import TopicChanges, settings_of
from pydanube.client.connection import BrokerConnection
from pydanube.client.requester import Requester, retry
from pydanube.model.arguments import checks_arguments
from pydanube.model.choices import CorruptionPolicyName, DurabilityName
from pydanube.model.descriptions import (
    Segments,
    TopicDescription,
    TopicOffsets,
    TopicPlace,
    TopicSettings,
)
from pydanube.model.errors import (
    InvalidRequest,
    NotFound,
    ProtocolViolation,
    SubscriptionInUse,
    TopicHeld,
    TopicNotFound,
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
from pydanube.model.positions import parse_choice, to_microseconds
from pydanube.wire.native.messages import from_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb

PAGE = 1000
"""The most names or descriptions that a client requests at a time."""
ROUNDS_MAX = 3
"""How often the brokers of topics that move are asked for them, before each topic."""


Names: TypeAlias = "list[str]"
Pages: TypeAlias = "list[pb.Topics]"


@checks_arguments
class Topics:
    """The topics of a broker or of its cluster; ``Client.topics``."""

    def __init__(self, client: Requester) -> None:
        self._client = client

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
            pages.append(await self._client.send_request(message))
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
        await self._client.request_topic(topic, message)


@checks_arguments
class TopicRequests(Requester):
    """The operations of ``Client`` on topics and partitions."""

    @property
    def topics(self) -> Topics:
        """The topics of the broker or of its cluster."""
        return Topics(self)

    async def create_topic(
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
        exist_ok: bool = False,
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
            exist_ok: Accept a topic that exists with the same settings; those that
                can be changed later are not compared, and do not change.

        Raises:
            AlreadyExists: The topic exists.
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
        await self.create_topics(topic, policy, partitions, exist_ok=exist_ok)

    async def create_topics(
        self, topic: str, policy: TopicPolicy, partitions: int | None, *, exist_ok: bool
    ) -> None:
        """Create *topic* with *policy*; for other modules of the client."""
        check_partitions(partitions)
        message = pb.CreateTopic(
            policy=to_wire(pb.TopicPolicy, policy),
            partitions=partitions or 0,
            exist_ok=exist_ok,
        )
        await self.request_topic(topic, message)

    async def delete_topic(self, topic: str, *, force: bool = False) -> None:
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
        if not force and (await self.connection()).welcome.is_clustered:
            found = await self.find_partitions(topic)
            if found.is_partitioned:
                for partition in found.topics:
                    await self._check_deletable(partition)
                force = True
        await self.request_topic(topic, pb.DeleteTopic(force=force))

    async def _check_deletable(self, topic: str) -> None:
        """
        Ask the owner of *topic* whether it may be deleted without force.

        Raises:
            SubscriptionInUse: It has producers or consumers.
            TopicHeld: It has a retention hold.
        """
        described = await self.describe_topic(topic)
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

    async def describe_topic(self, topic: str) -> TopicDescription:
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
            answer = await self.request_topic(topic, message)
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
        return await retry(partial(self._list_offsets, names), self.retry_s)

    async def _list_offsets(self, names: list[str]) -> dict[str, TopicOffsets]:
        answers = await self._ask_owners(
            names, lambda some: pb.ListOffsets(topics=some)
        )
        found = {
            topic: from_wire(TopicOffsets, each)
            for answer in answers
            for topic, each in ((each.topic, each) for each in answer.topics)
        }
        for name in names:
            if name not in found:
                # It does not exist, or no broker serves it at the moment.
                self.owners.forget(name)
                with suppress(TopicNotFound):
                    found[name] = _offsets_of(await self.describe_topic(name))
        return {name: found[name] for name in names if name in found}

    async def _ask_owners(
        self, names: Sequence[str], request_of: Callable[[list[str]], Any]
    ) -> list[Any]:
        """
        Return the answers of the brokers that serve the topics *names*, in pages.

        A broker that is asked for topics of others names their brokers, which are asked
        next.  Topics that do not exist are in no answer.
        """
        answers: list[Any] = []
        left, owners = list(names), dict[str, str]()
        for _ in range(ROUNDS_MAX):
            by_broker: dict[BrokerConnection, list[str]] = {}
            for name in left:
                if name in owners:
                    self.owners.on_location(name, owners[name])
                is_known = self.owners.find(name) is not None
                connection = await self.connection(name if is_known else "")
                by_broker.setdefault(connection, []).append(name)
            pages = [
                (connection, some[first : first + PAGE])
                for connection, some in by_broker.items()
                for first in range(0, len(some), PAGE)
            ]
            found = await gather(self._ask_page(*page, request_of) for page in pages)
            left = []
            for answer in (answer for page in found for answer in page):
                answers.append(answer)
                for other in answer.elsewhere:
                    left += other.topics
                    url = self._pool.same_url(other.url)
                    owners |= dict.fromkeys(other.topics, url)
            if not left:
                break
        return answers

    async def _ask_page(
        self,
        connection: BrokerConnection,
        names: list[str],
        request_of: Callable[[list[str]], Any],
    ) -> list[Any]:
        """Return the answers of one broker; there are several if one is too large."""
        answers, has_more = [], True
        while has_more and names:
            answer = await self.request_at(connection, request_of(names))
            answers.append(answer)
            has_more = getattr(answer, "has_more", False)
            done = {each.topic for each in answer.topics}
            names = [name for name in names if name not in done]
        return answers

    async def segments(self, topic: str, base: int = 0, end: int = 0) -> Segments:
        """
        Return the segments with the messages ``base … end`` (0: all) of *topic*.

        Raises:
            TopicNotFound: There is no such topic.
        """
        message = pb.ListSegments(base_offset=base, end_offset=end)
        answer = await self.request_topic(topic, message)
        return _segments_of(answer, dict(answer.store_options))

    async def list_segments(
        self, ranges: Mapping[str, tuple[int, int]]
    ) -> dict[str, Segments]:
        """
        Return the segments with messages of a range of offsets, for several topics.

        They lack what maintenance needs: ``epoch`` and ``objects_url``.  Topics that do
        not exist are left out.
        """
        names = {str(TopicName.parse(topic)): topic for topic in ranges}
        return await retry(partial(self._list_segments, names, ranges), self.retry_s)

    async def _list_segments(
        self, names: Mapping[str, str], ranges: Mapping[str, tuple[int, int]]
    ) -> dict[str, Segments]:
        def request_of(some: list[str]) -> pb.FindSegments:
            message = pb.FindSegments()
            for name in some:
                base, end = ranges[names[name]]
                message.ranges.add(topic=name, base_offset=base, end_offset=end)
            return message

        found = {
            each.topic: _segments_of(each, dict(answer.store_options))
            for answer in await self._ask_owners(list(names), request_of)
            for each in answer.topics
        }
        for name, topic in names.items():
            if name not in found:
                # It does not exist, is not permitted, or has no owner at the moment.
                with suppress(TopicNotFound):
                    found[name] = await self.segments(name, *ranges[topic])
        return {topic: found[name] for name, topic in names.items() if name in found}

    async def replace_segments(
        self,
        topic: str,
        topic_id: int,
        old: Sequence[str],
        new: Sequence[tuple[str, int, int]],
    ) -> int:
        """
        Replace segments of *topic* with new objects, for maintenance.

        Args:
            topic: A topic, or one partition.
            topic_id: The id of the topic when the objects were made.
            old: The object names of adjacent segments.
            new: The name, length and CRC-32C of each new object.

        Returns: The number of messages that this removed.

        Durability: On return the broker has compared the objects with the segments,
            and the replacement is on disk.  On an error nothing has changed.

        Raises:
            TopicNotFound: There is no such topic any more.
            TopicHeld: The topic has a retention hold.
            SegmentsChanged: The topic no longer has the old segments.
            InvalidRequest: The objects cannot replace them.
        """
        message = pb.ReplaceSegments(topic_id=topic_id, old=old)
        for name, byte_count, checksum in new:
            message.new.add(object_name=name, byte_count=byte_count, checksum=checksum)
        return int((await self.request_topic(topic, message)).removed)

    async def hold_topic(self, topic: str, name: str, reason: str = "") -> None:
        """
        Put a retention hold on *topic*, or on each of its partitions.

        Until ``release_topic``, retention and maintenance do not change the segments,
        and the topic cannot be deleted without force.  List the segments after this,
        not before.  A hold with the same *name* changes its reason.

        Durability: On return the hold is on disk.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The topic is not reliable, or it has too many holds.
        """
        for each in await self.existing_partitions(topic):
            await self.request_topic(each, pb.HoldTopic(name=name, reason=reason))

    async def release_topic(self, topic: str, name: str) -> None:
        """
        End the hold *name* on *topic*, or on each of its partitions.

        Raises:
            TopicNotFound: There is no such topic.
            NotFound: There is no such hold, on none of the partitions.
        """
        missing: list[NotFound] = []
        topics = await self.existing_partitions(topic)
        for each in topics:
            try:
                await self.request_topic(each, pb.ReleaseTopic(name=name))
            except TopicNotFound:
                raise
            except NotFound as error:
                missing.append(error)
        if len(missing) == len(topics):
            raise missing[0]

    async def find_offsets(
        self, topic: str, times: Sequence[datetime | float]
    ) -> list[int | None]:
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
        answer = await self.request_topic(topic, message)
        if len(answer.offset) != len(times):
            raise ProtocolViolation(
                f"the broker answered {len(times)} times with {len(answer.offset)} "
                "offsets"
            )
        return [
            offset if offset < answer.end_offset else None for offset in answer.offset
        ]

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
        await self.request_topic(topic, pb.AddPartitions(partitions=partitions))

    async def partitions(self, topic: str) -> list[str]:
        """
        Return the partitions of *topic*, by number.

        For a topic without partitions this is the topic; empty if there is no topic.
        """
        return list((await self.find_partitions(topic)).topics)

    async def find_partitions(self, topic: str) -> Any:
        """Look up the partitions, for other modules of the client."""
        answer = await self.request_topic(topic, pb.ListPartitions())
        if answer.is_partitioned and not answer.topics:
            raise ProtocolViolation(
                f"the broker answered that {topic} has no partitions"
            )
        return answer

    async def existing_partitions(self, topic: str) -> list[str]:
        """
        Return the partitions of *topic*, at least one, for other modules of the client.

        Raises:
            TopicNotFound: There is no such topic.
        """
        names = await self.partitions(topic)
        if not names:
            raise TopicNotFound(f"Unable to find the topic: {topic}")
        return names

    async def one_partition(self, topic: str, what: str) -> str:
        """
        Return *topic* or its only partition, for other modules of the client.

        Raises:
            InvalidRequest: It has several partitions, and *what* needs one.
        """
        names = await self.existing_partitions(topic)
        if len(names) > 1:
            raise InvalidRequest(
                f"{topic} has {len(names)} partitions, and {what} needs one: name it, "
                f"for example {names[0]}"
            )
        return names[0]


def _segments_of(answer: pb.Segments, options: Mapping[str, str]) -> Segments:
    found = from_wire(Segments, answer)
    if not options:
        return found
    segments = [replace(each, store_options=options) for each in found.segments]
    return replace(found, segments=tuple(segments))


def _offsets_of(facts: TopicDescription) -> TopicOffsets:
    return TopicOffsets(
        topic_id=facts.topic_id,
        base_offset=facts.base_offset,
        end_offset=facts.end_offset,
        sealed_offset=facts.sealed_offset,
        tail_bytes=facts.tail_bytes,
        is_reliable=facts.policy.is_reliable,
    )


def check_partitions(partitions: int | None) -> None:
    if partitions is not None and partitions < 1:
        raise InvalidRequest(
            f"partitions is {partitions}: a topic has at least one partition"
        )
