"""Names that the shell completes: topics, subscriptions, namespaces and contexts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

from pydanube.model.errors import BrokerError
from pydanube_cli.invocation.contexts import contexts_path, load_contexts

TIMEOUT_S = 2.0
"""The shell waits for the completion, so a broker that is slow completes nothing."""


def complete_topics(ctx: Any, incomplete: str) -> list[str]:
    """Return the topics whose names begin with *incomplete*."""

    async def find(client: Any) -> list[str]:
        from pydanube.model.subscription_lag import base_of  # noqa: PLC0415

        found: set[str] = set()
        for namespace in await client.namespaces.list():
            if f"/{namespace}/".startswith(incomplete[: len(namespace) + 2]):
                found.update(map(base_of, await client.topics.list(namespace)))
        return sorted(found)

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


def _complete(
    ctx: Any, incomplete: str, find: Callable[[Any], Awaitable[list[str]]]
) -> list[str]:
    """Return the names that *find* finds; none if the broker does not answer."""
    # Most commands complete nothing.
    from pydanube.client.client import DEFAULT_URL, URL_VARIABLE, connect  # noqa: PLC0415

    url = ctx.params.get("url") or os.environ.get(URL_VARIABLE) or DEFAULT_URL

    async def work() -> list[str]:
        async with asyncio.timeout(TIMEOUT_S), connect(url) as client:
            return await find(client)

    try:
        names = asyncio.run(work())
    except (BrokerError, OSError):
        return []
    return [name for name in names if name.startswith(incomplete)]
