"""
Rules of the features of a cluster that a run can leave out.

The promises of ``features.py`` are worth something only if runs find a broker that does
not keep them.  Each rule here is left out of the product, and then one of a few seeds
of its feature finds it.  No seed has found yet that commits do not compare the epochs
of their topics; the model of shared acknowledgements does
(``tests/properties/test_shared_acks.py``).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pydanube.client.consumers.consumer import TopicConsumer
from pydanube.client.consumers.partitioned_consumer import PartitionedConsumer
from pydanube.client.messages.messages import Source
from pydanube.model.errors import NotOwner, Unavailable
from pydanube.model.policy import ProducerAccess
from pydanube_broker.broker.delivery.reliable_subscription import ReliableSubscription
from pydanube_broker.broker.pure.deduplication import DeduplicationWindow
from pydanube_broker.broker.pure.producer_registrations import ProducerRegistrations
from pydanube_broker.broker.serving.internal_publishing import _SourceSession
from pydanube_broker.broker.staging.shared_commits import SharedCommits
from pydanube_broker.broker.staging.transaction_acks import TransactionAcknowledger
from pydanube_broker.dispatch.deferred import DeferredMessages
from pydanube_broker.dispatch.machine import SubscriptionMachine
from pydanube_broker.metadata import keys
from support.fakes.clusters import LateStore

if TYPE_CHECKING:
    from simulation.cluster_rules import Replacements

_find_again = TransactionAcknowledger._find_again
_write = SharedCommits.write
_park = ReliableSubscription._park
_register = ProducerRegistrations.register
_on_available = SubscriptionMachine.on_available
_store_change = LateStore._change


async def _drop_what_is_not_open(acknowledger: Any, record: Any) -> Any:
    try:
        return await _find_again(acknowledger, record)
    except (NotOwner, Unavailable):
        return None


async def _write_in_any_epoch(
    commits: Any, query: str, record: Any, expected: Any, _: Any = ()
) -> None:
    await _write(commits, query, record, expected)


def _hold_nothing(subscription: Any, ranges: Any) -> None:
    pass


def _place_all(_: Any, ids: Any, end: int, now: int) -> tuple[list[int], list[int]]:
    return [end + at for at in range(len(ids))], list(range(len(ids)))


def _miss_all(_: Any, positions: Any) -> Any:
    yield from ((at, at + 1) for at in range(len(positions)))


def _drop(messages: Any, span: Any, effects: Any) -> None:
    messages._drop(span, effects)


def _park_and_forget(subscription: Any, effect: Any) -> None:
    _park(subscription, effect)
    stored = partial(
        *(subscription.on_parked, effect.base, effect.end), is_expired=effect.is_expired
    )
    asyncio.get_running_loop().call_soon(stored)


def _deliver_at_once(
    machine: Any,
    base: int,
    end: int,
    byte_count: int,
    now: float,
    windows: Any,
    **options: Any,
) -> Any:
    due = [replace(each, due=None) for each in windows]
    return _on_available(machine, base, end, byte_count, now, due, **options)


def _register_shared(registrations: Any, request: Any, producers_max: int) -> Any:
    request.access = ProducerAccess.SHARED
    return _register(registrations, request, producers_max)


async def _overwrite_schemas(store: Any, comparisons: Any, operations: Any) -> Any:
    subjects = keys.SUBJECTS.path
    kept = [each for each in comparisons if not each.key.path.startswith(subjects)]
    return await _store_change(store, kept, operations)


async def _use_ids_again(store: Any, comparisons: Any, operations: Any) -> Any:
    kept = [each for each in operations if each.key != keys.LAST_TOPIC_ID]
    return await _store_change(store, comparisons, kept)


def _stay(consumer: Any, _: Any) -> None:
    """Keep the messages from before a seek."""
    consumer._source = Source(consumer.topic, consumer.subscription, consumer)


async def _discover_nothing(_: Any) -> None:
    pass


BROKEN_RULES: dict[str, Replacements] = {
    "acks_are_dropped_with_the_topic_only": {
        (TransactionAcknowledger, "_find_again"): _drop_what_is_not_open
    },
    "acks_are_held": {(ReliableSubscription, "hold_messages"): _hold_nothing},
    "commit_compares_epochs": {(SharedCommits, "write"): _write_in_any_epoch},
    "copies_are_known": {(_SourceSession, "find_missing"): _miss_all},
    "copies_before_done": {(ReliableSubscription, "_park"): _park_and_forget},
    "delays": {(SubscriptionMachine, "on_available"): _deliver_at_once},
    "exclusive_access": {(ProducerRegistrations, "register"): _register_shared},
    "failed_messages_are_kept": {(DeferredMessages, "_give_up"): _drop},
    "ids_are_stored_once": {(DeduplicationWindow, "place"): _place_all},
    "new_partitions_are_found": {
        (PartitionedConsumer, "_discover_partitions"): _discover_nothing
    },
    "schemas_are_compared": {(LateStore, "_change"): _overwrite_schemas},
    "seek_drops_deliveries": {(TopicConsumer, "_on_moved"): _stay},
    "topic_ids_are_new": {(LateStore, "_change"): _use_ids_again},
}
"""The replacements of methods, by the rule that is left out."""
