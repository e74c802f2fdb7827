"""Tests of what the answers to requests for messages mean."""

import asyncio

import pytest

pytest.importorskip("nats")

from nats.aio.msg import Msg

from pydanube_connect.pure.failures import Transient
from pydanube_connect.sources.nats_pull import (
    MessageNumbers,
    PullRequests,
    numbers_of,
    sequence_index,
)

SHORT = "$JS.ACK.ORDERS.reader.1.17.3.1700000000000000000.5"
LONG = "$JS.ACK.hub.ACCOUNT.ORDERS.reader.1.17.3.1700000000000000000.5"


@pytest.mark.parametrize("reply", [SHORT, LONG, f"{LONG}.token"])
def test_numbers_of_a_message(reply):
    assert numbers_of(reply) == MessageNumbers(sequence=17, delivery=3, pending=5)
    tokens = reply.split(".")
    assert tokens[sequence_index(tokens)] == "17"


@pytest.mark.parametrize(
    ("status", "text", "reason"),
    [
        ("503", "", "forgotten"),
        ("409", "Consumer Deleted", "Consumer Deleted"),
        ("409", "Exceeded MaxRequestMaxBytes of 10", "MaxRequestMaxBytes"),
    ],
)
def test_refused_requests_open_the_source_again(status, text, reason):
    async def run():
        requests = PullRequests()
        headers = {"Status": status, "Description": text}
        await requests.on_message(Msg(None, headers=headers))
        with pytest.raises(Transient, match=reason):
            await requests.next()

    asyncio.run(run())


def test_closed_connection_opens_the_source_again():
    async def run():
        requests = PullRequests()
        await requests.on_closed()
        with pytest.raises(Transient, match="closed the connection"):
            await requests.next()

    asyncio.run(run())
