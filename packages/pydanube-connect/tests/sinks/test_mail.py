"""Tests of the sink that sends mails, with a real mail server."""

import json

import pytest

pytest.importorskip("aiosmtpd")

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube_connect.status import State
from pydanube_connect.trial import try_connector
from support.drivers.connectors import declared, write_messages
from support.servers.mail_server import MailServer
from support.worlds.current import memory_broker

pytestmark = pytest.mark.slow

TOPIC = "/default/alerts"


@pytest.fixture
def server(tmp_path):
    with MailServer(tmp_path) as found:
        yield found


def declaration(server, **changes):
    options = {
        "host": "localhost",
        "port": server.port,
        "username": "danube",
        "password": "sesame",
        "ca_file": str(server.ca_file),
        "sender": "danube@example.com",
        "to": ["on-call@example.com"],
        "subject": "{payload}",
        **changes,
    }
    return f"""
connectors:
  mail:
    kind: mail-sink
    topic: {TOPIC}
    dead_letters: /default/dead
    retries: {{backoff: 1ms}}
    options: {json.dumps(options)}
"""


async def send(text, *payloads):
    """Send mails for *payloads*; the status at the end."""
    messages = [(None, payload) for payload in payloads]
    status, _ = await write_messages(text, TOPIC, *messages)
    return status


async def test_each_message_is_a_mail(server):
    status = await send(declaration(server), b"one", b"two")
    assert status.messages == 2
    assert [each["Subject"] for each in server.mails] == ["one", "two"]
    assert server.mails[0]["From"] == "danube@example.com"


async def test_mails_above_the_limit_are_counted(server, caplog):
    text = declaration(server, per_minute=1)
    assert (await send(text, b"one", b"two", b"three")).messages == 3
    assert [each["Subject"] for each in server.mails] == ["one"]
    assert "2 messages were not mailed" in caplog.text


async def test_a_mail_is_tried_again_without_the_others(server):
    server.answers = [None, "451 try later", "451 try later"]
    status = await send(declaration(server, per_minute=2), b"one", b"two")
    assert (status.messages, status.retries) == (2, 2)
    assert [each["Subject"] for each in server.mails] == ["one", "two"]


async def test_a_mail_that_is_rejected_becomes_a_dead_letter(server):
    server.answers = ["554 spam"]
    status = await send(declaration(server), b"one", b"two")
    assert (status.messages, status.dead_letters) == (1, 1)
    assert [each["Subject"] for each in server.mails] == ["two"]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"password": "wrong"}, "answers 535"),
        ({"to": ["nobody@example.com"]}, "refuses the recipient nobody@example.com"),
    ],
)
async def test_what_the_server_refuses_stops_the_connector(server, changes, error):
    status = await send(declaration(server, **changes), b"one")
    assert status.state is State.FAILED
    assert error in status.error


async def test_a_trial_logs_in_without_a_mail(server):
    async with memory_broker() as broker:
        [connector] = declared(declaration(server), broker.url)
        assert (await try_connector(connector)).problem is None
        [connector] = declared(declaration(server, password="no"), broker.url)
        assert "535" in (await try_connector(connector)).problem
    assert server.mails == []


async def test_a_certificate_that_is_not_trusted_is_an_error(server):
    async with memory_broker() as broker:
        [connector] = declared(declaration(server, ca_file=None), broker.url)
        problem = (await try_connector(connector)).problem
    assert "certificate verify failed" in problem


def test_a_password_needs_tls(server):
    with pytest.raises(InvalidDeclaration, match="to protect the password"):
        declared(declaration(server, security="none"), "danube://h:1")
