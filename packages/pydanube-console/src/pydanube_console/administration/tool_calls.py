"""The common parts of all tools: their caller, their errors, bounds on results."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Annotated, Any, TypeVar

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from pydanube.model.errors import BrokerError
from pydanube.model.json_values import to_json_value
from pydanube_console.administration.callers import Caller, Callers

CALL_S = 30.0
"""How long a tool may take."""
ITEMS_SHOWN_MAX = 100
"""How many items of a list inside of a description are shown."""
CALLER = "danube.caller"
"""The caller of a request, in its ASGI scope."""

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])

Topic = Annotated[str, Field(description="A topic, such as /default/orders.")]
Subscription = Annotated[str, Field(description="The name of a subscription.")]
Pattern = Annotated[
    str,
    Field(
        description="A topic, or a pattern such as /shop/* in which * stands for any "
        "text without a slash; empty: all topics."
    ),
]
Limit = Annotated[
    int, Field(ge=1, le=500, description="The most items to return, at most 500.")
]


async def caller_of(callers: Callers, context: Context) -> Caller:
    """
    Return who calls a tool.

    Raises:
        BrokerError: The broker cannot be reached, or refuses the caller.
    """
    scope = getattr(context.request_context.request, "scope", {})
    found: Caller | None = scope.get(CALLER)
    return await callers.own() if found is None else found


def as_tool(function: F) -> F:
    """Return *function* with errors that tell an assistant what is wrong."""

    @wraps(function)
    async def call(*given: Any, **named: Any) -> Any:
        try:
            async with asyncio.timeout(CALL_S):
                return await function(*given, **named)
        except BrokerError as error:
            raise ToolError(f"{error.code}: {error}") from None
        except TimeoutError:
            raise ToolError(
                f"the brokers have not answered within {CALL_S:g} s; a change may "
                "have been made: look before you repeat it"
            ) from None

    # The annotations as types: those of a method are not found otherwise.
    call.__signature__ = inspect.signature(function, eval_str=True)  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def limited(items: Sequence[Any], limit: int, total: int | None = None) -> Any:
    """Return the first *limit* of *items* as values of JSON, and how many there are."""
    count = len(items) if total is None else total
    shown = [shortened(to_json_value(each)) for each in items[:limit]]
    return {"items": shown, "total": count, "is_truncated": count > len(shown)}


def shortened(value: Any, items_max: int = ITEMS_SHOWN_MAX) -> Any:
    """Return *value* with at most *items_max* items in each list."""
    if isinstance(value, dict):
        return {name: shortened(each, items_max) for name, each in value.items()}
    if isinstance(value, list):
        kept = [shortened(each, items_max) for each in value[:items_max]]
        more = len(value) - items_max
        return [*kept, f"… and {more} more"] if more > 0 else kept
    return value
