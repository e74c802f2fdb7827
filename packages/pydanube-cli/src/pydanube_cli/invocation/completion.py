"""Names that the shell completes, and those that a mistyped topic resembles."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from typing import Any

from pydanube.model.errors import BrokerError, TopicNotFound
from pydanube.model.suggestions import did_you_mean
from pydanube_cli.invocation.contexts import contexts_path, load_contexts

TIMEOUT_S = 2.0
"""A shell or a user waits for the names, so a broker that is slow gives none."""

SUGGESTIONS_FROM_MAX = 5000
"""The largest number of names that a mistyped name is compared with."""

_TOPIC = re.compile(r"/[^\s/]+/[^\s/:,]+")


def complete_topics(ctx: Any, incomplete: str) -> list[str]:
    """Return the topics whose names begin with *incomplete*."""

    async def find(client: Any) -> list[str]:
        namespaces = [
            each
            for each in await client.namespaces.list()
            if f"/{each}/".startswith(incomplete[: len(each) + 2])
        ]
        return await _topics_of(client, namespaces)

    return _complete(ctx, incomplete, find)


def complete_subscriptions(ctx: Any, incomplete: str) -> list[str]:
    """Return the subscriptions of the topic that the command names."""

    async def find(client: Any) -> list[str]:
        # The shell leaves arguments here if an option after them has no value yet.
        named = [ctx.params.get("topic"), *ctx.args]
        topic = next((each for each in named if each and each[0] == "/"), None)
        if topic is None:
            return []
        names: list[str] = []
        # All partitions of a topic usually have the same subscriptions.
        for each in (await client.topics.partitions(topic))[:1]:
            described = await client.topics.describe(each)
            names += [found.subscription for found in described.subscriptions]
        return sorted(names)

    return _complete(ctx, incomplete, find)


def complete_namespaces(ctx: Any, incomplete: str) -> list[str]:
    """Return the namespaces whose names begin with *incomplete*."""

    async def find(client: Any) -> list[str]:
        return sorted(await client.namespaces.list())

    return _complete(ctx, incomplete, find)


def complete_contexts(ctx: Any, incomplete: str) -> list[str]:
    """Return the contexts whose names begin with *incomplete*."""
    del ctx
    try:
        names = sorted(load_contexts(contexts_path(os.environ)).by_name)
    except BrokerError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def suggest_topic(error: TopicNotFound, url: str) -> str:
    """
    Return ``; did you mean '/default/orders'?`` if a topic resembles the missing one.

    Returns an empty string otherwise, also if the broker does not answer.
    """
    found = _TOPIC.search(str(error))
    if found is None:
        return ""
    namespace = found[0].split("/")[1]
    known = _ask(url, lambda client: _topics_of(client, [namespace]))
    return did_you_mean(found[0], known[:SUGGESTIONS_FROM_MAX])


async def _topics_of(client: Any, namespaces: list[str]) -> list[str]:
    """Return the topics of *namespaces*; partitions are one."""
    from pydanube.model.subscription_lag import base_of  # noqa: PLC0415

    found: set[str] = set()
    for namespace in namespaces:
        found.update(map(base_of, await client.topics.list(namespace)))
    return sorted(found)


def _complete(
    ctx: Any, incomplete: str, find: Callable[[Any], Awaitable[list[str]]]
) -> list[str]:
    """Return the names that *find* finds; none if the broker does not answer."""
    from pydanube.client.client import DEFAULT_URL, URL_VARIABLE  # noqa: PLC0415

    url = ctx.params.get("url") or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    return [name for name in _ask(url, find) if name.startswith(incomplete)]


def _ask(url: str, find: Callable[[Any], Awaitable[list[str]]]) -> list[str]:
    # Most commands need no names.
    from pydanube.client.client import connect  # noqa: PLC0415

    async def work() -> list[str]:
        async with asyncio.timeout(TIMEOUT_S), connect(url) as client:
            return await find(client)

    try:
        return asyncio.run(work())
    except (BrokerError, OSError):
        return []
