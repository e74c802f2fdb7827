"""
Options that a context gives a value, unless the command line or a variable does.

The file of the contexts is read once, when the first such option needs it.
"""

from __future__ import annotations

import os
from typing import Any

from pydanube.model.errors import InvalidRequest
from pydanube_cli.invocation.contexts import Context, contexts_path, load_contexts

_CONTEXT = "pydanube.context"
_ADDRESS_FROM = "pydanube.address_from"
_ADDRESS = "pydanube.address"


def value_from_context(ctx: Any, param: Any, value: Any) -> Any:
    """
    Return the value of an option whose name is that of a setting of contexts.

    Raises:
        InvalidConfig: The file of the contexts is invalid.
        InvalidRequest: ``--context`` and a variable contradict each other.
        NotFound: The context that applies does not exist.
    """
    found = _value_for(ctx, param, value)
    if param.name == "url":
        ctx.meta[_ADDRESS] = found
    return found


def _value_for(ctx: Any, param: Any, value: Any) -> Any:
    source = ctx.get_parameter_source(param.name).name
    if source == "ENVIRONMENT" and is_context_named(ctx):
        raise InvalidRequest(
            f"--context and the variable {param.envvar} both set {param.opts[0]}; "
            "unset the variable, or leave out --context"
        )
    if source != "DEFAULT":
        return value
    name, context = chosen_context(ctx)
    setting = None if context is None else getattr(context, param.name)
    if setting is None:
        return value
    if param.name == "url":
        ctx.meta[_ADDRESS_FROM] = name
    return type(value)(setting)


def chosen_context(ctx: Any) -> tuple[str | None, Context | None]:
    """
    Return the name of the context that applies, and the context; None: there is none.

    Raises:
        InvalidConfig: The file of the contexts is invalid.
        NotFound: ``--context`` or the variable names a context that does not exist.
    """
    if _CONTEXT not in ctx.meta:
        contexts = load_contexts(contexts_path(os.environ))
        name = ctx.find_root().params.get("context") or contexts.current
        ctx.meta[_CONTEXT] = name, None if name is None else contexts.find(name)
    name, context = ctx.meta[_CONTEXT]
    return name, context


def is_context_named(ctx: Any) -> bool:
    """Return whether the command line has ``--context``."""
    source = ctx.find_root().get_parameter_source("context")
    return source is not None and source.name == "COMMANDLINE"


def address_context(ctx: Any) -> str | None:
    """Return the context that the address of the broker comes from, if it does."""
    name: str | None = ctx.meta.get(_ADDRESS_FROM)
    return name


def address(ctx: Any) -> str | None:
    """Return the address of the broker, if the command has one."""
    found: str | None = ctx.meta.get(_ADDRESS)
    return found
