"""`danube brokers`: shows the brokers of a cluster, drains them, and levels loads."""

from __future__ import annotations

import operator
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from pydanube.model.clusters import (
    BrokerMode,
    ClusterBroker,
    ClusterDescription,
    ShardMove,
)
from pydanube.model.errors import InvalidRequest
from pydanube.model.json_values import to_json_value
from pydanube.model.positions import to_datetime
from pydanube.model.quantity_formats import format_time
from pydanube.sync import Client
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import Connect, command, confirm
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.output import Columns, Fields, Result, Table
from pydanube_cli.presentation.progress_line import progress_line

POLL_INTERVAL_S = 0.2
TOPICS_NAMED_MAX = 20
"""How many topics a question names."""
NOT_CLUSTERED = "this broker is not part of a cluster"

app = command_group(
    """
    Show the brokers of a cluster, drain them, and balance their load.

    A cluster divides its topics into shards. Each shard is served by one broker.
    """,
    "danube brokers list",
    "danube brokers drain broker-1 --reason 'new disk'",
    "danube brokers undrain broker-1",
    "danube brokers forget broker-1",
    "danube brokers forget broker-1 --accept-loss",
    "danube brokers rebalance --dry-run",
)

Broker = Annotated[
    str,
    typer.Argument(
        metavar="BROKER", help="Its name in danube brokers list.", show_default=False
    ),
]


AcceptLoss = Annotated[
    bool,
    typer.Option(
        "--accept-loss", help="Go on without journals of the broker that are damaged."
    ),
]


def _state_of(broker: ClusterBroker) -> str:
    state = broker.mode.value if broker.url else f"{broker.mode.value}, stopped"
    return f"{state}, controller" if broker.is_controller else state


def _start_of(broker: ClusterBroker) -> str:
    if broker.started_at is None:
        return ""
    return format_time(to_datetime(broker.started_at))


ALONE: Columns = {"Broker": "broker_id", "URL": "url", "Version": "version"}

COLUMNS: Columns = {
    "Broker": "broker_id",
    "URL": "url",
    "State": _state_of,
    "Shards": "shard_count",
    "Topics": "topic_count",
    "Incoming": "incoming_count",
    "Zone": "zone",
    "Started": _start_of,
}

FIELDS: Columns = {**COLUMNS, "Danube URL": "grpc_url", "Session": "session_id"}

SERVED: Columns = {
    "Shard": operator.itemgetter("shard"),
    "Topic": operator.itemgetter("topic"),
}

MOVE_COLUMNS: Columns = {
    "Shard": "shard",
    "From": "source",
    "To": "target",
    "Topics": "topic_count",
    "Names": lambda move: _names_of(move.topics, move.topic_count),
}


@command(app, "danube brokers list", "danube brokers list --format json", name="list")
def list_(connect: Connect) -> Result:
    """
    List the brokers of the cluster, and how many shards and topics each one serves.

    Without a cluster, show the broker that answers.
    """
    with connect() as client:
        found = client.cluster.describe(counts_topics=True)
        if not found.shard_count:
            described = client.cluster.describe_broker()
            return Result([described], Table.of([described], ALONE))
    return Result(found.brokers, Table.of(found.brokers, COLUMNS))


@command(app, "danube brokers describe", "danube brokers describe broker-1")
def describe(
    connect: Connect,
    broker: Annotated[
        str | None,
        typer.Argument(
            metavar="BROKER",
            help="Its name in danube brokers list; by default the broker that answers, "
            "with its version and contents.",
            show_default=False,
        ),
    ] = None,
) -> Result:
    """
    Describe a broker, with the topics that it serves and their shards.

    Only topics that you may see are listed.
    """
    with connect() as client:
        if broker is None:
            return _describe_own(client)
        cluster = client.cluster.describe(counts_topics=True)
        places = client.topics.places() if cluster.shard_count else {}
    found = [each for each in cluster.brokers if each.broker_id == broker]
    if not found:
        names = ", ".join(each.broker_id for each in cluster.brokers)
        raise InvalidRequest(
            f"the cluster has no broker {broker!r}; it has {names}"
            if cluster.shard_count
            else NOT_CLUSTERED
        )
    topics = [
        {"topic": topic, "shard": place.shard}
        for topic, place in places.items()
        if place.broker_id == broker
    ]
    # Two runs of one broker may be listed until the store notes the end of the first.
    parts: list[Any] = [Fields.of(each, FIELDS) for each in found]
    if topics:
        parts += ["", Table.of(topics, SERVED)]
    return Result([to_json_value(each) | {"topics": topics} for each in found], *parts)


def _describe_own(client: Client) -> Result:
    """Describe the broker that answers."""
    counts = {
        "namespace_count": len(client.namespaces.list()),
        "topic_count": len(client.topics.list()),
    }
    described = client.cluster.describe_broker()
    return Result(
        to_json_value(described) | counts,
        Fields.of(described, ALONE),
        Fields(zip(("Namespaces", "Topics"), counts.values(), strict=True)),
    )


@command(app, "danube brokers drain broker-1 --reason 'new disk'")
def drain(
    connect: Connect, broker: Broker, *, reason: str = "", wait: bool = True
) -> Result:
    """
    Move all topics of a broker to other brokers, and give it no more.

    Publishers and consumers follow their topics. The broker stays drained when it
    restarts; see danube brokers undrain. The setting cluster.moves_max says how many
    shards move at the same time.

    Args:
        reason: Why, for other people.
        wait (--wait/--no-wait): Whether to wait until the broker serves nothing.
    """
    with connect() as client:
        client.cluster.drain_broker(broker, reason=reason)
        if not wait:
            return Result({"broker": broker}, f"{broker} is draining")
        with progress_line("moving shards", is_shown=sys.stderr.isatty()) as show:
            while True:
                found = _find(client.cluster.describe(), broker)
                if found.mode is not BrokerMode.DRAINING:
                    break
                show(f"{found.shard_count} are left", found.shard_count)
                time.sleep(POLL_INTERVAL_S)
    if found.mode is BrokerMode.ACTIVE:
        raise InvalidRequest(f"{broker} was activated again meanwhile")
    return Result(found, f"{broker} is drained: it serves no topics")


@command(app, "danube brokers undrain broker-1")
def undrain(connect: Connect, broker: Broker, *, reason: str = "") -> Result:
    """
    Let a drained broker serve topics again; it gets its share soon.

    Args:
        reason: Why, for other people.
    """
    with connect() as client:
        client.cluster.activate_broker(broker, reason=reason)
    return Result({"broker": broker}, f"{broker} is active")


@command(
    app,
    "danube brokers forget broker-1",
    "danube brokers forget broker-1 --accept-loss",
)
def forget(
    connect: Connect,
    broker: Broker,
    *,
    accept_loss: AcceptLoss = False,
    yes: parameters.Yes = False,
) -> Result:
    """
    Remove a broker that never comes back from the list of brokers.

    Only drained and draining brokers are listed while they do not run. No message is
    lost: everything that a broker has acknowledged is in the object store, and other
    brokers serve its topics. A broker of this name that starts later is a new one.

    If objects of its journal are lost or damaged, its topics wait for them. With
    --accept-loss they are served again without the messages that were only there.
    """
    with connect() as client:
        cluster = client.cluster.describe()
        if not cluster.shard_count:
            raise InvalidRequest(NOT_CLUSTERED)
        if accept_loss:
            return _give_up_journals(client, broker, is_sure=yes)
        found = [each for each in cluster.brokers if each.broker_id == broker]
        if any(each.url for each in found):
            raise InvalidRequest(
                f"{broker} runs: stop it first, and wait until its session has ended"
            )
        if found:
            client.cluster.activate_broker(broker, reason="it does not come back")
    text = (
        f"{broker} is forgotten, and nothing is lost"
        if found
        else f"the cluster does not list {broker}, so there is nothing to forget"
    )
    if cluster.unserved_count:
        text += (
            f"; other brokers are taking over {cluster.unserved_count} of "
            f"{cluster.shard_count} shards"
        )
    return Result({"broker": broker, "unserved_count": cluster.unserved_count}, text)


def _give_up_journals(client: Client, broker: str, *, is_sure: bool) -> Result:
    shards = client.cluster.forget_broker(broker)
    topics = [topic for shard in shards for topic in shard.topics]
    fields = {"broker": broker, "shards": [s.shard for s in shards], "topics": topics}
    if not shards:
        text = f"no shard waits for a journal of {broker}, so nothing is lost"
        return Result(fields, text)
    count = sum(shard.topic_count for shard in shards)
    named = ", ".join(topics[:TOPICS_NAMED_MAX]) or "no topics"
    more = ", …" if count > TOPICS_NAMED_MAX else ""
    confirm(
        f"{len(shards)} shards wait for journals of {broker}, with {count} topics "
        f"({named}{more}). Where a journal is damaged, lose all messages of these "
        "topics that were not uploaded, and the cursors of their subscriptions?",
        is_sure=is_sure,
    )
    client.cluster.forget_broker(broker, accept_loss=True)
    text = (
        f"{len(shards)} shards with {count} topics go on without journals of {broker} "
        "that are damaged; the logs of the brokers name each topic that lost messages"
    )
    return Result(fields, text)


@command(app, "danube brokers rebalance --dry-run", "danube brokers rebalance")
def rebalance(connect: Connect, *, dry_run: bool = False) -> Result:
    """
    Balance the load of the brokers now, also if it differs little.

    The cluster does this by itself if a broker differs from the average by more than
    the setting cluster.imbalance_percent_max. The load of a shard is its part of the
    bytes, the connections and the number of shards.

    Args:
        dry_run: Only show which shards would move.
    """
    with connect() as client:
        moves = client.cluster.rebalance(dry_run=dry_run)
    if not moves:
        return Result(moves, "the load is balanced: no shard moves")
    verb = "would move" if dry_run else "move; see danube cluster status"
    return Result(moves, Table.of(moves, MOVE_COLUMNS), f"{len(moves)} shards {verb}")


def move(
    connect: Connect,
    topic: parameters.Topic,
    *,
    to: Annotated[str, typer.Option(metavar="BROKER", show_default=False)],
) -> Result:
    """
    Move a topic to another broker of the cluster.

    All topics of its shard move with it, and the output names them. Name the
    partitions of a partitioned topic one by one. The shard may move again later, to
    balance the load.

    Args:
        to: The broker, as in danube brokers list.
    """
    with connect() as client:
        made = client.cluster.move_topic(topic, to)
    if made.source == made.target:
        return Result(made, f"{to} serves {topic} already, or will soon")
    return Result(made, _describe_move(topic, made))


def _describe_move(topic: str, move: ShardMove) -> str:
    text = (
        f"{topic} moves from {move.source or '(no broker)'} to {move.target}, with "
        f"shard {move.shard}"
    )
    others = [each for each in move.topics if each != topic]
    if others:
        text += f" and its other topics: {_names_of(others, move.topic_count - 1)}"
    return text


def _names_of(names: Sequence[str], count: int) -> str:
    more = count - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def _find(cluster: ClusterDescription, broker_id: str) -> ClusterBroker:
    for each in cluster.brokers:
        if each.broker_id == broker_id:
            return each
    # A drained broker is listed, also if it does not run.
    return ClusterBroker(broker_id=broker_id)
