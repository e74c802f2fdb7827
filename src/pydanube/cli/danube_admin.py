"""
`danube-admin`: the commands of the original's admin tool, for scripts that have them.

It speaks the admin interface of Danube over gRPC, and prints what the original prints.
`danube admin` is the one to learn; it knows more.
"""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pydanube.cli import scripts
from pydanube.cli.answers import print_json, print_line, print_table, say
from pydanube.cli.danube_admin_schemas import add_topic_commands, schemas
from pydanube.cli.grpc_calls import Credentials, ask
from pydanube.cli.options import examples
from pydanube.cli.schema_calls import registry_call
from pydanube.cli.scripts import (
    Reported,
    add_unavailable,
    quoted,
    truth,
)
from pydanube.cli.topic_arguments import InNamespace, Topic, topic_name
from pydanube.model.errors import BrokerError, InvalidRequest, NotFound
from pydanube.wire.pb import danube_admin_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from google.protobuf.message import Message

    from pydanube.cli.grpc_calls import Caller

DEFAULT_ENDPOINT = "http://127.0.0.1:50051"

_RELIABLE = frozenset({"reliable", "reliable_dispatch", "reliable-dispatch"})

app = typer.Typer(
    name="danube-admin",
    cls=Reported,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "danube-admin brokers list",
        "danube-admin topics create /default/orders --dispatch-strategy reliable",
        "danube-admin --endpoint http://broker:50051 topics list --namespace default",
    ),
)


@dataclass(frozen=True, slots=True)
class _Target:
    """Whom a command asks."""

    endpoint: str
    credentials: Credentials

    def call(
        self, service: str, method: str, request: Message, timeout_s: float = 60.0
    ) -> Any:
        """The answer of the broker."""

        async def question(caller: Caller) -> Any:
            descriptor = pb.DESCRIPTOR.services_by_name[service]
            return await caller.call(descriptor, method, request, timeout_s=timeout_s)

        return ask(self.endpoint, question, self.credentials)

    def registry_call(self, method: str, request: Message) -> Any:
        """The answer of the broker's schema registry."""

        async def question(caller: Caller) -> Any:
            return await registry_call(caller, method, request)

        return ask(self.endpoint, question, self.credentials)


@app.callback()
def danube_admin(
    ctx: typer.Context,
    endpoint: Annotated[
        str,
        typer.Option(
            metavar="URL",
            envvar="DANUBE_ADMIN_ENDPOINT",
            help="Where the broker's admin interface is. It may stand anywhere in the "
            "command.",
        ),
    ] = DEFAULT_ENDPOINT,
) -> None:
    """
    Administer a broker as Danube's own tool does, with its commands and answers.

    DANUBE_ADMIN_TOKEN is sent as a bearer token. DANUBE_ADMIN_TLS=true, _CA, _CERT,
    _KEY and _DOMAIN protect the connection. "danube admin" knows more commands.
    """
    ctx.obj = _Target(endpoint, Credentials.from_environment(os.environ))


def _group(name: str, help_: str) -> typer.Typer:
    group = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help=help_)
    app.add_typer(group, name=name)
    return group


brokers = _group("brokers", "Which brokers there are, and what they serve.")
namespaces = _group("namespaces", "Namespaces and their policies.")
topics = _group("topics", "Topics, and what is decided about their subscriptions.")

_NO_CLUSTER = "this version of pydanube runs each broker alone"
_NO_SECURITY = "this version of pydanube has no roles and tokens"
_NO_CONSOLE = (
    "this version of pydanube has no console; every broker answers a JSON API on its "
    "HTTP port, by default 8080"
)

for _command, _reason in (
    ("cluster", _NO_CLUSTER),
    ("security", _NO_SECURITY),
    ("serve", _NO_CONSOLE),
    ("server", _NO_CONSOLE),
):
    add_unavailable(app, _command, _reason)

app.add_typer(schemas, name="schemas")
add_topic_commands(topics)


# Brokers.


@brokers.command("list")
def list_brokers(ctx: typer.Context, *, output: scripts.OutputOption = None) -> None:
    """List the brokers."""
    answer = ctx.obj.call("BrokerAdmin", "ListBrokers", pb.Empty())
    if output is not None:
        names = (
            *("broker_id", "broker_status", "broker_addr", "broker_role"),
            *("admin_addr", "metrics_addr"),
        )
        print_json([{n: getattr(each, n) for n in names} for each in answer.brokers])
        return
    print_table(
        ("BROKER ID", "STATUS", "ADDRESS", "ROLE", "ADMIN ADDR", "METRICS ADDR"),
        (
            (
                each.broker_id,
                each.broker_status,
                each.broker_addr,
                each.broker_role,
                each.admin_addr,
                each.metrics_addr,
            )
            for each in answer.brokers
        ),
    )


@brokers.command("leader-broker")
def leader_broker(ctx: typer.Context) -> None:
    """Say which broker leads."""
    answer = ctx.obj.call("BrokerAdmin", "GetLeaderBroker", pb.Empty())
    print_line(f'Leader Broker: "{answer.leader}"')


@brokers.command("namespaces")
def list_namespaces(ctx: typer.Context, *, output: scripts.OutputOption = None) -> None:
    """List the namespaces."""
    answer = ctx.obj.call("BrokerAdmin", "ListNamespaces", pb.Empty())
    _print_names("Namespace", answer.namespaces, output)


@brokers.command()
def unload(
    ctx: typer.Context,
    *,
    broker_id: Annotated[str, typer.Option(metavar="ID", help="Which one.")],
    max_parallel: Annotated[int, typer.Option(min=1, help="Topics at a time.")] = 1,
    namespaces_include: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only of these.")
    ] = None,
    namespaces_exclude: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Not of these.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many topics it would be.")
    ] = False,
    timeout_seconds: Annotated[int, typer.Option(min=1, help="How long at most.")] = 60,
) -> None:
    """Hand all topics of a broker to the others."""
    request = pb.UnloadBrokerRequest(
        broker_id=broker_id,
        max_parallel=max_parallel,
        namespaces_include=namespaces_include or (),
        namespaces_exclude=namespaces_exclude or (),
        dry_run=dry_run,
        timeout_seconds=timeout_seconds,
    )
    answer = ctx.obj.call(
        "BrokerAdmin", "UnloadBroker", request, timeout_s=timeout_seconds + 5.0
    )
    print_line(
        f"UnloadBroker started={truth(answer.started)} total={answer.total} "
        f"succeeded={answer.succeeded} failed={answer.failed} pending={answer.pending}"
    )
    for each in answer.failed_topics:
        say(each)


@brokers.command()
def activate(
    ctx: typer.Context,
    *,
    broker_id: Annotated[str, typer.Option(metavar="ID", help="Which one.")],
    reason: Annotated[str, typer.Option(help="For people.")] = "admin_activate",
) -> None:
    """Let a broker take topics again."""
    request = pb.ActivateBrokerRequest(broker_id=broker_id, reason=reason)
    answer = ctx.obj.call("BrokerAdmin", "ActivateBroker", request)
    print_line(f"ActivateBroker success={truth(answer.success)}")


@brokers.command()
def balance(ctx: typer.Context, *, output: scripts.OutputOption = None) -> None:
    """Say how evenly the brokers are loaded."""
    answer = ctx.obj.call(
        "BrokerAdmin", "GetClusterBalance", pb.ClusterBalanceRequest()
    )
    figures = (
        *("coefficient_of_variation", "mean_load", "max_load", "min_load"),
        *("std_deviation", "broker_count"),
    )
    if output is not None:
        loads = ("broker_id", "load", "topic_count", "is_overloaded", "is_underloaded")
        document: dict[str, Any] = {name: getattr(answer, name) for name in figures}
        document["brokers"] = [
            {name: getattr(each, name) for name in loads} for each in answer.brokers
        ]
        print_json(document)
        return
    print_line(
        f"Coefficient of Variation: {answer.coefficient_of_variation * 100:.2f}%"
    )
    print_line(f"Mean Load: {answer.mean_load:.2f}")
    print_line(f"Max Load: {answer.max_load:.2f}")
    print_line(f"Min Load: {answer.min_load:.2f}")
    print_line(f"Std Deviation: {answer.std_deviation:.2f}")
    print_line(f"Broker Count: {answer.broker_count}")
    for each in answer.brokers:
        print_line(
            f"  Broker {each.broker_id}: load {each.load:.2f}, "
            f"{each.topic_count} topics"
        )


@brokers.command()
def rebalance(
    ctx: typer.Context,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be moved.")
    ] = False,
    max_moves: Annotated[
        int | None, typer.Option(min=1, help="At most so many topics.")
    ] = None,
) -> None:
    """Even the brokers' load out."""
    request = pb.RebalanceRequest(dry_run=dry_run, max_moves=max_moves)
    answer = ctx.obj.call("BrokerAdmin", "TriggerRebalance", request)
    print_line(f"Success: {truth(answer.success)}")
    print_line(f"Moves Executed: {answer.moves_executed}")
    for each in answer.proposed_moves:
        print_line(
            f"  {each.topic_name}: {each.from_broker} -> {each.to_broker} "
            f"({each.reason})"
        )
    if answer.error_message:
        print_line(answer.error_message)


# Namespaces.

Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE", help="Its name.")]


@namespaces.command("topics")
def namespace_topics(
    ctx: typer.Context, namespace: Namespace, *, output: scripts.OutputOption = None
) -> None:
    """List the topics of a namespace."""
    request = pb.NamespaceRequest(name=namespace)
    answer = ctx.obj.call("NamespaceAdmin", "GetNamespaceTopics", request)
    _print_names("Topic", answer.topics, output)


@namespaces.command()
def policies(
    ctx: typer.Context, namespace: Namespace, *, output: scripts.OutputOption = None
) -> None:
    """Show the policies of a namespace; 0 stands for no limit."""
    request = pb.NamespaceRequest(name=namespace)
    answer = ctx.obj.call("NamespaceAdmin", "GetNamespacePolicies", request)
    try:
        document = json.loads(answer.policies)
    except ValueError as error:
        raise BrokerError(f"the broker's answer is not JSON: {error}") from error
    if output is not None:
        print_json(document)
        return
    print_line(f"Policies of namespace {namespace}:")
    for name, value in document.items():
        print_line(f"  {name}: {value}")


@namespaces.command("create")
def create_namespace(ctx: typer.Context, namespace: Namespace) -> None:
    """Create a namespace."""
    request = pb.NamespaceRequest(name=namespace)
    answer = ctx.obj.call("NamespaceAdmin", "CreateNamespace", request)
    print_line(f"Namespace Created: {truth(answer.success)}")


@namespaces.command("delete")
def delete_namespace(ctx: typer.Context, namespace: Namespace) -> None:
    """Delete a namespace that has no topics."""
    request = pb.NamespaceRequest(name=namespace)
    answer = ctx.obj.call("NamespaceAdmin", "DeleteNamespace", request)
    print_line(f"Namespace Deleted: {truth(answer.success)}")


# Topics.

Subscription = Annotated[
    str, typer.Option("--subscription", "-s", metavar="NAME", help="Which one.")
]


@topics.command("list")
def list_topics(
    ctx: typer.Context,
    *,
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this namespace.")
    ] = None,
    broker: Annotated[
        str | None, typer.Option(metavar="ID", help="Of this broker.")
    ] = None,
    output: scripts.OutputOption = None,
) -> None:
    """List the topics of a namespace, or of a broker."""
    if (namespace is None) == (broker is None):
        raise InvalidRequest("either --namespace or --broker says which topics")
    if namespace is not None:
        request = pb.NamespaceRequest(name=namespace)
        answer = ctx.obj.call("TopicAdmin", "ListNamespaceTopics", request)
    else:
        answer = ctx.obj.call(
            "TopicAdmin", "ListBrokerTopics", pb.BrokerRequest(broker_id=broker)
        )
    if output is not None:
        print_json(
            [
                {"name": t.name, "broker_id": t.broker_id, "delivery": t.delivery}
                for t in answer.topics
            ]
        )
        return
    for each in answer.topics:
        owner = f"broker_id: {each.broker_id}, " if each.broker_id else ""
        print_line(f"Topic: {each.name} ({owner}delivery: {each.delivery})")


@topics.command("create")
def create_topic(
    ctx: typer.Context,
    topic: Topic,
    *,
    namespace: InNamespace = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="As so many partitions.")
    ] = None,
    schema_subject: Annotated[
        str | None, typer.Option(metavar="SUBJECT", help="The topic's schema.")
    ] = None,
    dispatch_strategy: Annotated[
        str,
        typer.Option(
            metavar="non_reliable|reliable", help="In memory only, or on disk."
        ),
    ] = "non_reliable",
) -> None:
    """Create a topic."""
    name = topic_name(topic, namespace)
    strategy = pb.Reliable if dispatch_strategy in _RELIABLE else pb.NonReliable
    if partitions is None:
        plain = pb.NewTopicRequest(
            name=name, schema_subject=schema_subject, dispatch_strategy=strategy
        )
        ctx.obj.call("TopicAdmin", "CreateTopic", plain)
        print_line(f"✅ Topic created: {name}")
    else:
        partitioned = pb.PartitionedTopicRequest(
            base_name=name,
            partitions=partitions,
            schema_subject=schema_subject,
            dispatch_strategy=strategy,
        )
        ctx.obj.call("TopicAdmin", "CreatePartitionedTopic", partitioned)
        print_line(f"✅ Partitioned topic created: {name}")
    if schema_subject is not None:
        print_line(f"   Schema subject: {schema_subject}")
    if partitions is not None:
        print_line(f"   Partitions: {partitions}")


@topics.command("delete")
def delete_topic(
    ctx: typer.Context, topic: Topic, *, namespace: InNamespace = None
) -> None:
    """Delete a topic, or all partitions of a name, with all messages."""
    request = pb.TopicRequest(name=topic_name(topic, namespace))
    answer = ctx.obj.call("TopicAdmin", "DeleteTopic", request)
    print_line(f"Topic Deleted: {truth(answer.success)}")


@topics.command()
def subscriptions(
    ctx: typer.Context,
    topic: Topic,
    *,
    namespace: InNamespace = None,
    output: scripts.OutputOption = None,
) -> None:
    """List the subscriptions of a topic."""
    request = pb.TopicRequest(name=topic_name(topic, namespace))
    names = ctx.obj.call("TopicAdmin", "ListSubscriptions", request).subscriptions
    if output is not None:
        print_json(list(names))
    else:
        print_line(f"Subscriptions: {quoted(names)}")


@topics.command()
def describe(
    ctx: typer.Context,
    topic: Topic,
    *,
    namespace: InNamespace = None,
    output: scripts.OutputOption = None,
) -> None:
    """Describe a topic."""
    request = pb.DescribeTopicRequest(name=topic_name(topic, namespace))
    answer = ctx.obj.call("TopicAdmin", "DescribeTopic", request)
    schema = {
        name: getattr(answer, name) if answer.HasField(name) else None
        for name in (
            *("schema_subject", "schema_id", "schema_version", "schema_type"),
            "compatibility_mode",
        )
    }
    if output is not None:
        facts = {"broker_id": answer.broker_id, "delivery": answer.delivery}
        names = {"subscriptions": list(answer.subscriptions)}
        print_json({"topic": answer.name} | facts | schema | names)
        return
    print_line(f"Topic: {answer.name}")
    print_line(f"Broker ID: {answer.broker_id}")
    print_line(f"Delivery: {answer.delivery}")
    for name, value in schema.items():
        if value is not None:
            print_line(f"{name.replace('_', ' ').title()}: {value}")
    print_line(f"Subscriptions: {quoted(answer.subscriptions)}")


@topics.command()
def unsubscribe(
    ctx: typer.Context,
    topic: Topic,
    *,
    subscription: Subscription,
    namespace: InNamespace = None,
) -> None:
    """Delete a subscription that has no consumers."""
    request = pb.SubscriptionRequest(
        topic=topic_name(topic, namespace), subscription=subscription
    )
    answer = ctx.obj.call("TopicAdmin", "Unsubscribe", request)
    print_line(f"Unsubscribed: {truth(answer.success)}")


@topics.command("unload")
def unload_topic(
    ctx: typer.Context, topic: Topic, *, namespace: InNamespace = None
) -> None:
    """Hand a topic to another broker."""
    request = pb.TopicRequest(name=topic_name(topic, namespace))
    answer = ctx.obj.call("TopicAdmin", "UnloadTopic", request)
    print_line(f"Topic Unloaded: {truth(answer.success)}")


class BackoffStrategy(Enum):
    """How the delay between deliveries grows."""

    FIXED = "fixed"
    EXPONENTIAL = "exponential"


class Poison(Enum):
    """What becomes of a message that failed too often."""

    DEAD_LETTER = "dead_letter"
    DEAD_LETTER_WITH_HYPHEN = "dead-letter"
    BLOCK = "block"
    DROP = "drop"


_BACKOFFS: dict[BackoffStrategy, pb.SubscriptionBackoffStrategy] = {
    BackoffStrategy.FIXED: pb.Fixed,
    BackoffStrategy.EXPONENTIAL: pb.Exponential,
}

_POISONS: dict[Poison, pb.SubscriptionPoisonPolicy] = {
    Poison.DEAD_LETTER: pb.DeadLetter,
    Poison.DEAD_LETTER_WITH_HYPHEN: pb.DeadLetter,
    Poison.BLOCK: pb.Block,
    Poison.DROP: pb.Drop,
}

Milliseconds = Annotated[int, typer.Option(min=0, metavar="MS", help="Milliseconds.")]


@topics.command("set-failure-policy")
def set_failure_policy(
    ctx: typer.Context,
    topic: Topic,
    *,
    subscription: Subscription,
    max_redelivery_count: Annotated[
        int, typer.Option(min=0, metavar="N", help="Redeliveries of one message.")
    ],
    ack_timeout_ms: Milliseconds,
    base_redelivery_delay_ms: Milliseconds,
    max_redelivery_delay_ms: Milliseconds,
    poison_policy: Annotated[
        Poison,
        typer.Option(
            metavar="dead_letter|block|drop",
            help="What becomes of a message that failed too often.",
        ),
    ],
    backoff_strategy: Annotated[
        BackoffStrategy,
        typer.Option(metavar="fixed|exponential", help="How the delay grows."),
    ] = BackoffStrategy.FIXED,
    dead_letter_topic: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="Required with dead_letter."),
    ] = None,
    namespace: InNamespace = None,
) -> None:
    """Say what becomes of messages that a subscription's consumers fail to process."""
    name = topic_name(topic, namespace)
    request = pb.SetSubscriptionFailurePolicyRequest(
        topic=name,
        subscription=subscription,
        failure_policy=pb.SubscriptionFailurePolicy(
            max_redelivery_count=max_redelivery_count,
            ack_timeout_ms=ack_timeout_ms,
            base_redelivery_delay_ms=base_redelivery_delay_ms,
            max_redelivery_delay_ms=max_redelivery_delay_ms,
            backoff_strategy=_BACKOFFS[backoff_strategy],
            dead_letter_topic=dead_letter_topic,
            poison_policy=_POISONS[poison_policy],
        ),
    )
    ctx.obj.call("TopicAdmin", "SetSubscriptionFailurePolicy", request)
    print_line(
        f"✅ Failure policy updated for topic '{name}' subscription '{subscription}'"
    )


@topics.command("get-failure-policy")
def get_failure_policy(
    ctx: typer.Context,
    topic: Topic,
    *,
    subscription: Subscription,
    namespace: InNamespace = None,
    output: scripts.OutputOption = None,
) -> None:
    """Show what becomes of messages that a subscription's consumers fail to process."""
    name = topic_name(topic, namespace)
    request = pb.GetSubscriptionFailurePolicyRequest(
        topic=name, subscription=subscription
    )
    answer = ctx.obj.call("TopicAdmin", "GetSubscriptionFailurePolicy", request)
    if not answer.HasField("failure_policy"):
        raise NotFound("subscription failure policy not found")
    policy = answer.failure_policy
    facts: dict[str, Any] = {
        "topic": name,
        "subscription": subscription,
        "max_redelivery_count": policy.max_redelivery_count,
        "ack_timeout_ms": policy.ack_timeout_ms,
        "base_redelivery_delay_ms": policy.base_redelivery_delay_ms,
        "max_redelivery_delay_ms": policy.max_redelivery_delay_ms,
        "backoff_strategy": _word(_BACKOFFS, policy.backoff_strategy),
        "dead_letter_topic": (
            policy.dead_letter_topic if policy.HasField("dead_letter_topic") else None
        ),
        "poison_policy": _word(_POISONS, policy.poison_policy),
    }
    if output is not None:
        print_json(facts)
        return
    for fact, value in facts.items():
        print_line(f"{fact}: {'none' if value is None else value}")


def hoisted(arguments: Sequence[str]) -> list[str]:
    """*arguments* with ``--endpoint`` first, where it belongs to no command."""
    first: list[str] = []
    rest: list[str] = []
    words = deque(arguments)
    while words:
        word = words.popleft()
        if word == "--":
            return [*first, *rest, word, *words]
        if word == "--endpoint" and words:
            first += [word, words.popleft()]
        elif word.startswith("--endpoint="):
            first.append(word)
        else:
            rest.append(word)
    return first + rest


def _print_names(
    what: str, names: Sequence[str], output: scripts.Output | None
) -> None:
    if output is not None:
        print_json(list(names))
        return
    for name in names:
        print_line(f"{what}: {name}")


def _word(numbers: Mapping[Any, int], number: int) -> str:
    """What the command calls the *number*; the first of two names."""
    known = (each.value for each, value in numbers.items() if value == number)
    return str(next(known, number))


def main() -> None:
    """Run the command that the arguments of the process name."""
    scripts.run(app, "danube-admin", hoisted(sys.argv[1:]))


if __name__ == "__main__":
    main()
