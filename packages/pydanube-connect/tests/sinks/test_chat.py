"""Messages are posted to webhooks that behave as those of chats are documented."""

import json

import pytest

from pydanube_connect.trial import try_connector
from support.drivers.connectors import declared, write_messages
from support.servers.http_server import Answer, LocalServer
from support.worlds.current import memory_broker

pytestmark = pytest.mark.slow

TOPIC = "/default/alerts"


def slack(request):
    """Answer as Slack's incoming webhooks do."""
    try:
        text = json.loads(request.body)["text"]
    except (ValueError, KeyError):
        return Answer(400, b"invalid_payload")
    return Answer(200, b"ok") if text else Answer(400, b"no_text")


def discord(request):
    """Answer as Discord's webhooks do."""
    if request.method == "GET":
        return Answer(200, b'{"id": "1"}') if request.path == "/1" else Answer(404)
    content = json.loads(request.body)["content"]
    return Answer(204) if 0 < len(content) <= 2000 else Answer(400, b'{"code": 50006}')


def declaration(server, **options):
    return f"""
connectors:
  chat:
    kind: chat-sink
    topic: {TOPIC}
    dead_letters: /default/dead
    retries: {{backoff: 1ms}}
    options: {json.dumps({"url": f"{server.url}/1", **options})}
"""


async def test_messages_are_posted_in_order_and_too_many_come_again():
    with LocalServer(slack) as server:
        server.faults += [None, Answer(429, b"rate_limited", {"retry-after": "0"})]
        text = declaration(server, text="{value.severity}: {value.summary}")
        alerts = [
            (None, json.dumps({"severity": "low", "summary": f"alert {number}"}))
            for number in range(3)
        ]
        status, dead = await write_messages(text, TOPIC, *alerts)
    assert (status.messages, status.retries, dead) == (3, 1, [])
    assert [json.loads(each.body)["text"] for each in server.requests] == [
        "low: alert 0",
        "low: alert 1",
        "low: alert 2",
    ]


async def test_what_the_chat_refuses_becomes_a_dead_letter():
    with LocalServer(slack) as server:
        text = declaration(server, text="{value.summary}")
        messages = (None, b"{}"), (None, b'{"summary": "x"}')
        status, dead = await write_messages(text, TOPIC, *messages)
    assert (status.messages, len(dead)) == (1, 1)
    assert "400: no_text" in dead[0].attributes["x-failure-reason"]


async def test_a_channel_that_is_archived_stops_the_connector():
    with LocalServer(lambda _: Answer(410, b"channel_is_archived")) as server:
        status, _ = await write_messages(declaration(server), TOPIC, (None, b"x"))
    assert "channel_is_archived" in status.error


async def test_any_body_has_places():
    with LocalServer(lambda _: Answer(200)) as server:
        body = {"username": "Danube", "blocks": [{"text": "{key}: {payload}"}]}
        await write_messages(declaration(server, body=body), TOPIC, ("k", b"x"))
    assert json.loads(server.requests[0].body) == {
        "username": "Danube",
        "blocks": [{"text": "k: x"}],
    }


@pytest.mark.parametrize(("path", "problem"), [("1", None), ("2", "no such webhook")])
async def test_a_trial_asks_discord_for_the_webhook(path, problem):
    with LocalServer(discord) as server:
        text = declaration(server, service="discord", url=f"{server.url}/{path}")
        async with memory_broker() as broker:
            [connector] = declared(text, broker.url)
            trial = await try_connector(connector, timeout_s=60)
    assert (trial.problem is None) is (problem is None)
    assert problem is None or problem in trial.problem
    assert [each.method for each in server.requests] == ["GET"]


async def test_long_texts_are_cut_for_discord():
    with LocalServer(discord) as server:
        text = declaration(server, service="discord")
        status, _ = await write_messages(text, TOPIC, (None, b"x" * 5000))
    assert status.messages == 1
