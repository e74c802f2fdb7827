"""`danube security quotas`: what principals, namespaces and topics may use."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from pydanube.model.errors import InvalidRequest, NotFound
from pydanube.model.quantity_formats import format_bytes, format_count
from pydanube.security.quotas import Quota, QuotaDescription
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import Connect, command, confirm
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.output import Columns, Fields, Result, Table
from pydanube_cli.presentation.quantities import optional, parse_bytes

app = command_group(
    """
    Limit what principals, namespaces and topics use.

    A principal is user:NAME, or anonymous for clients without credentials; it can have
    limits of connections, requests and bytes per second. A namespace is /shop; it can
    have limits of topics, subscriptions, bytes per second and stored bytes. A topic is
    /shop/orders; it can have limits of bytes per second and stored bytes.

    Clients that exceed a rate are slowed down. Connections, topics, subscriptions and
    messages beyond the other limits are refused with quota_exceeded.
    """,
    "danube security quotas set user:billing --bytes-in 10MiB --connections 20",
    "danube security quotas set /shop --topics 100 --storage 50GiB",
    "danube security quotas list",
    "danube security quotas describe user:billing",
    "danube security quotas remove user:billing --yes",
)

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="user:NAME, anonymous, /namespace or /namespace/topic.",
        show_default=False,
    ),
]

LABELS = {
    "connections": "Connections",
    "requests_per_s": "Requests per second",
    "topics": "Topics",
    "subscriptions": "Subscriptions",
    "bytes_in_per_s": "Published bytes per second",
    "bytes_out_per_s": "Delivered bytes per second",
    "storage_bytes": "Stored bytes",
    "sessions": "MQTT sessions",
}
"""The label of each limit."""


def _amount(name: str, number: int) -> str:
    return format_bytes(number) if "bytes" in name else format_count(number)


def _limits_of(found: QuotaDescription) -> str:
    limits = (
        f"{name}={_amount(name, limit)}"
        for name in LABELS
        if (limit := getattr(found.quota, name))
    )
    return ", ".join(limits) or "no limit"


def _used_of(found: QuotaDescription) -> str:
    return ", ".join(
        f"{name}={_amount(name, count)}"
        for name, count in found.used.items()
        if getattr(found.quota, name)
    )


QUOTA: Columns = {
    "Target": "target",
    "Limits": _limits_of,
    "In use": _used_of,
    "Waited": lambda found: f"{found.throttled_s:.1f} s",
    "Refused": "refused_count",
}


@command(
    app,
    "danube security quotas set user:billing --bytes-in 10MiB --bytes-out 50MiB",
    "danube security quotas set anonymous --connections 100 --requests 50",
    "danube security quotas set /shop --topics 100 --subscriptions 500 --storage 50GiB",
    "danube security quotas set /shop --storage 0",
    name="set",
)
def set_quota(
    connect: Connect,
    target: Target,
    *,
    connections: int | None = None,
    requests: int | None = None,
    topics: int | None = None,
    subscriptions: int | None = None,
    bytes_in: str | None = None,
    bytes_out: str | None = None,
    storage: str | None = None,
    sessions: int | None = None,
) -> Result:
    """
    Set limits; those that are not named do not change, and 0 removes one.

    All brokers apply them within seconds, also to open connections. Connections and
    data that already exceed a new limit stay: nothing is closed or deleted. Each broker
    of a cluster counts connections and rates for itself.

    Args:
        connections (NUMBER): Open connections of a principal.
        requests (NUMBER): Requests per second of a principal; batches and
            acknowledgements do not count.
        topics (NUMBER): Topics of a namespace; each partition counts.
        subscriptions (NUMBER): Subscriptions of all topics of a namespace.
        bytes_in (SIZE): Published bytes per second, such as 10MiB.
        bytes_out (SIZE): Delivered bytes per second, such as 10MiB.
        storage (SIZE): Stored bytes of a topic, or of all topics of a namespace.
        sessions (NUMBER): MQTT sessions of a principal that outlive their connections.
    """
    given = {
        "connections": connections,
        "requests_per_s": requests,
        "topics": topics,
        "subscriptions": subscriptions,
        "bytes_in_per_s": optional(parse_bytes, bytes_in),
        "bytes_out_per_s": optional(parse_bytes, bytes_out),
        "storage_bytes": optional(parse_bytes, storage),
        "sessions": sessions,
    }
    changes = {name: limit for name, limit in given.items() if limit is not None}
    if not changes:
        raise InvalidRequest(
            "no limit given; use --connections, --requests, --topics, --subscriptions, "
            "--bytes-in, --bytes-out, --storage or --sessions"
        )
    with connect() as client:
        known = client.security.describe_quota(target)
        before = Quota() if known is None or known.is_default else known.quota
        client.security.set_quota(target, replace(before, **changes))
        found = client.security.describe_quota(target)
    return _shown(target, found)


@command(
    app,
    "danube security quotas list",
    "danube security quotas list --format json",
    name="list",
)
def list_(connect: Connect) -> Result:
    """List the quotas that you may see, with what is in use."""
    with connect() as client:
        found = client.security.quotas()
    return Result(found, Table.of(found, QUOTA))


@command(
    app,
    "danube security quotas describe user:billing",
    "danube security quotas describe /shop --format json",
)
def describe(connect: Connect, target: Target) -> Result:
    """
    Show the limits of a principal, a namespace or a topic, and what is in use.

    A principal without a quota has that of the broker's settings (security.quota). The
    amounts in use are those of the broker to which the command connects.
    """
    with connect() as client:
        found = client.security.describe_quota(target)
    return _shown(target, found)


@command(app, "danube security quotas remove user:billing --yes")
def remove(connect: Connect, target: Target, *, yes: parameters.Yes = False) -> Result:
    """Remove all limits; a principal then has those of the broker's settings."""
    confirm(f"Remove the quota of {target}?", is_sure=yes)
    with connect() as client:
        client.security.remove_quota(target)
    return Result({"target": target}, f"removed the quota of {target}")


def _shown(target: str, found: QuotaDescription | None) -> Result:
    if found is None:
        raise NotFound(f"there is no quota of {target!r} that you may see")
    origin = " (security.quota in the settings)" if found.is_default else ""
    facts: list[tuple[str, object]] = [("Target", f"{found.target}{origin}")]
    for name, label in LABELS.items():
        limit = getattr(found.quota, name)
        used = found.used.get(name)
        if limit or used:
            text = _amount(name, limit) if limit else "no limit"
            if used is not None:
                text += f" ({_amount(name, used)} in use)"
            facts.append((label, text))
    facts += [
        ("Waited", f"{found.throttled_s:.1f} s"),
        ("Refused", found.refused_count),
    ]
    return Result(found, Fields(facts))
