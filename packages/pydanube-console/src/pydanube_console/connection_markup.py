"""The connections of clients as HTML.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydanube.model.connections import ConnectionDescription
from pydanube.model.positions import to_datetime
from pydanube.model.quantity_formats import (
    format_age,
    format_bytes,
    format_count,
    format_time,
)
from pydanube.model.subscription_lag import base_of
from pydanube_console.pure.charts import short_number
from pydanube_console.pure.markup import (
    Column,
    Html,
    badge,
    button,
    element,
    expandable_table,
    facts,
    join,
    link,
    table,
)

SHOWN = 100

Key = tuple[str, int]
"""The broker and the number of a connection."""
Rates = Mapping[Key, tuple[float, float]]
"""The messages that each connection has sent and received, per second."""

COLUMNS = [
    Column("Client"),
    Column("Principal", is_wide_only=True),
    Column("Address", is_wide_only=True),
    Column("Members", is_number=True),
    Column("In/s", is_number=True, is_wide_only=True),
    Column("Out/s", is_number=True, is_wide_only=True),
    Column("Since", is_wide_only=True),
    Column(""),
]


def key_of(each: ConnectionDescription) -> Key:
    """Return what identifies a connection."""
    return each.broker_id, each.connection_id


def matching(
    found: Sequence[ConnectionDescription], text: str
) -> list[ConnectionDescription]:
    """Return those of *found* that have *text* in a name, an address or a topic."""
    word = text.strip().lower()
    return [each for each in found if word in _searched(each).lower()]


def _searched(each: ConnectionDescription) -> str:
    names = [f"{member.topic} {member.subscription}" for member in each.members]
    about = (each.client, each.principal, each.address, each.listener, each.broker_id)
    return "\n".join([*about, *names])


def rates_between(
    before: Sequence[ConnectionDescription],
    after: Sequence[ConnectionDescription],
    elapsed_s: float,
) -> Rates:
    """Return the rates of connections that are in both samples, and are counted."""
    known = {key_of(each): each for each in before}
    rates = {}
    for each in after:
        old = known.get(key_of(each))
        if (
            old is not None
            and each.received_messages is not None
            and each.sent_messages is not None
        ):
            rates[key_of(each)] = (
                (each.received_messages - (old.received_messages or 0)) / elapsed_s,
                (each.sent_messages - (old.sent_messages or 0)) / elapsed_s,
            )
    return rates


def render_connections(
    found: Sequence[ConnectionDescription],
    rates: Rates,
    *,
    count: int,
    elapsed_s: float = 0.0,
) -> Html:
    """
    Return the first ``SHOWN`` of *found*, of *count* connections in all.

    *elapsed_s*: The time in which *rates* were measured; 0: they were not.
    """
    rows = [(_cells(each, rates), _details(each)) for each in found[:SHOWN]]
    text = f"{format_count(len(found))} of {format_count(count)} connections"
    if elapsed_s:
        text += f", rates over {format_age(elapsed_s)}"
    if len(found) > SHOWN:
        text += f"; the first {SHOWN} are shown, so filter them"
    shown = expandable_table(
        COLUMNS,
        rows,
        caption="Connections",
        empty="There are no such connections.",
        row="connection",
    )
    note = element("p", text, class_="muted", role="status")
    return element("section", note, shown, class_="panel")


def _cells(each: ConnectionDescription, rates: Rates) -> Sequence[object]:
    received, sent = rates.get(key_of(each), (None, None))
    value = f"{each.connection_id} {each.broker_id}"
    return (
        join([badge(each.listener), " ", each.client]),
        each.principal,
        element("span", each.address, class_="whole"),
        format_count(each.member_count),
        "" if received is None else short_number(received),
        "" if sent is None else short_number(sent),
        format_time(to_datetime(each.connection_id)),
        button("Close", "close", value, label=f"Close {each.address}"),
    )


def _details(each: ConnectionDescription) -> Html:
    pairs = [
        ("Id", each.connection_id),
        ("Broker", each.broker_id),
        ("Principal", each.principal),
        ("Address", each.address),
        ("Since", format_time(to_datetime(each.connection_id))),
    ]
    if each.received_bytes is not None and each.sent_bytes is not None:
        pairs += [
            ("Received", format_bytes(each.received_bytes)),
            ("Sent", format_bytes(each.sent_bytes)),
        ]
    rows = [
        (
            badge("consumer" if member.subscription else "producer"),
            link(member.topic, "/topic", name=base_of(member.topic)),
            member.subscription,
            member.name,
        )
        for member in each.members
    ]
    columns = [
        Column("Member"),
        Column("Topic"),
        Column("Subscription"),
        Column("Name", is_wide_only=True),
    ]
    further = each.member_count - len(each.members)
    return join(
        [
            facts(pairs),
            table(columns, rows, caption="Members", empty="No producers or consumers."),
            element("p", f"{further} more", class_="muted") if further else "",
        ]
    )
