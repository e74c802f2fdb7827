"""Requests about many topics, which go to the brokers that serve them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydanube.aio.tasks import gather
from pydanube.client.connections.connection import BrokerConnection
from pydanube.client.connections.requester import Requester

PAGE = 1000
"""The most topics that a client asks a broker for at a time."""
ROUNDS_MAX = 3
"""How often the brokers of topics that move are asked for them."""


async def ask_owners(
    requester: Requester,
    names: Sequence[str],
    request_of: Callable[[list[str]], Any],
) -> list[tuple[str, Any]]:
    """
    Return the answers of the brokers that serve the topics *names*, in pages.

    Each comes with the URL of the broker that gave it.

    A broker that is asked for topics of others names their brokers, which are asked
    next.  Topics that do not exist are in no answer.
    """
    answers: list[tuple[str, Any]] = []
    left, owners = list(names), dict[str, str]()
    for _ in range(ROUNDS_MAX):
        by_broker: dict[BrokerConnection, list[str]] = {}
        for name in left:
            if name in owners:
                requester.owners.on_location(name, owners[name])
            is_known = requester.owners.find(name) is not None
            connection = await requester.connection(name if is_known else "")
            by_broker.setdefault(connection, []).append(name)
        pages = [
            (connection, some[first : first + PAGE])
            for connection, some in by_broker.items()
            for first in range(0, len(some), PAGE)
        ]
        found = await gather(_ask_page(requester, *page, request_of) for page in pages)
        left = []
        asked = zip(pages, found, strict=True)
        for url, answer in ((c.url, each) for (c, _), page in asked for each in page):
            answers.append((url, answer))
            for other in answer.elsewhere:
                left += other.topics
                owner = requester.same_url(other.url)
                owners |= dict.fromkeys(other.topics, owner)
        if not left:
            break
    return answers


async def _ask_page(
    requester: Requester,
    connection: BrokerConnection,
    names: list[str],
    request_of: Callable[[list[str]], Any],
) -> list[Any]:
    """Return the answers of one broker; there are several if one is too large."""
    answers, has_more = [], True
    while has_more and names:
        answer = await requester.request_at(connection, request_of(names))
        answers.append(answer)
        has_more = getattr(answer, "has_more", False)
        done = {each.topic for each in answer.topics}
        names = [name for name in names if name not in done]
    return answers
