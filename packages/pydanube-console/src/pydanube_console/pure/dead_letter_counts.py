"""
The number of dead letters that wait for somebody, by dead-letter topic.

Pure.  A dead letter waits until the subscription ``dead-letters`` of its topic has
acknowledged it; without this subscription, nobody has handled one yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydanube.model.dead_letters import HANDLED_SUBSCRIPTION
from pydanube.model.descriptions import TopicDescription


def dead_letter_topics(topics: Iterable[TopicDescription]) -> set[str]:
    """Return the topics that failure policies of *topics* name."""
    return {
        policy.dead_letter_topic
        for topic in topics
        for each in topic.subscriptions
        if (policy := each.settings.failure_policy) is not None
        and policy.dead_letter_topic
    }


def count_dead_letters(topics: Iterable[TopicDescription]) -> Mapping[str, int]:
    """Return how many messages wait in each of *topics*, which have dead letters."""
    return {each.topic: _waiting(each) for each in topics}


def _waiting(topic: TopicDescription) -> int:
    for each in topic.subscriptions:
        if each.subscription == HANDLED_SUBSCRIPTION:
            return each.backlog
    return topic.message_count
