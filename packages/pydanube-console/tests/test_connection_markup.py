"""Connections are found, and have rates between two samples."""

from dataclasses import replace

from pydanube.model.connections import ConnectionDescription, ConnectionMember
from pydanube_console.connection_markup import (
    SHOWN,
    matching,
    rates_between,
    render_connections,
)

EVIL = "<script>"
ONE = ConnectionDescription(
    broker_id="b",
    connection_id=1_700_000_000_000_000,
    listener="stream",
    address="10.0.0.1:4711",
    client=EVIL,
    principal="ada",
    members=(
        ConnectionMember(topic="/shop/orders-part-1", name="c", subscription="s"),
    ),
    member_count=3,
    received_messages=10,
    received_bytes=100,
    sent_messages=0,
    sent_bytes=0,
)
UNCOUNTED = replace(
    ONE, broker_id="c", received_messages=None, sent_messages=None, sent_bytes=None
)


def test_connections_are_found_by_topic_and_client():
    for text in ("ORDERS", "ada", "10.0.0.1", EVIL, "", " b "):
        assert ONE in matching([ONE], text)
    assert matching([ONE], "nobody") == []


def test_rates_are_of_connections_in_both_samples():
    later = replace(ONE, received_messages=30, sent_messages=5)
    new = replace(ONE, connection_id=2)
    rates = rates_between([ONE, UNCOUNTED], [later, new, UNCOUNTED], 10.0)
    assert rates == {("b", ONE.connection_id): (2.0, 0.5)}


def test_table_has_members_below_each_connection():
    shown = render_connections([ONE, UNCOUNTED], {}, count=7, elapsed_s=2.0)
    assert "2 of 7 connections, rates over 2s" in shown
    assert EVIL not in shown
    assert "/topic?name=/shop/orders" in shown
    assert "2 more" in shown
    assert shown.count('data-action="close"') == 2


def test_long_lists_say_that_they_are_cut():
    many = [replace(ONE, connection_id=number) for number in range(SHOWN + 1)]
    shown = render_connections(many, {}, count=SHOWN + 1)
    assert f"the first {SHOWN} are shown" in shown
    assert shown.count('data-action="close"') == SHOWN
