"""Tests of mails for messages, and of the limit of their number."""

from datetime import UTC, datetime
from types import SimpleNamespace

from pydanube_connect.sinks.mails import MailLimit, mail_of


def message_of(payload=b"{}", key=b"k"):
    return SimpleNamespace(
        topic="/default/alerts",
        offset=7,
        payload=payload,
        key_bytes=key,
        publish_time=datetime(2026, 1, 2, tzinfo=UTC),
    )


def mail(payload=b"{}", **changes):
    settings = {
        "sender": "Danube <d@example.com>",
        "to": ["a@example.com", "b@example.com"],
        "subject": "{value.text}",
        "body": "{payload}",
    }
    return mail_of(message_of(payload), **{**settings, **changes})


def test_a_mail_has_all_headers():
    found = mail(b'{"text": "Disk full"}')
    assert found["To"] == "a@example.com, b@example.com"
    assert found["Subject"] == "Disk full"
    assert found["Message-ID"] == mail()["Message-ID"]
    assert found["Message-ID"].endswith("@example.com>")
    assert found["Date"] == "Fri, 02 Jan 2026 00:00:00 +0000"
    assert found.get_content() == '{"text": "Disk full"}\n'


def test_a_message_cannot_add_headers():
    found = mail(b'{"text": "a\\r\\nBcc: x@example.com\\u0000"}')
    assert found["Subject"] == "a Bcc: x@example.com"
    assert found["Bcc"] is None


def test_long_texts_are_cut():
    found = mail(b'{"text": "' + b"x" * 200_000 + b'"}')
    assert len(found["Subject"]) == 200
    assert len(found.get_content()) == 100_001


def test_the_next_mail_says_how_many_were_suppressed():
    text = mail(suppressed=2).get_content()
    assert "2 messages were not mailed" in text
    assert "1 message was not mailed" in mail(suppressed=1).get_content()


def test_the_limit_holds_for_any_minute():
    limit = MailLimit(2)
    assert [limit.allows(now) for now in (0, 59, 59, 59)] == [True, True, False, False]
    assert limit.wait_s(59) == 1
    assert limit.allows(60)
    assert limit.take_suppressed() == 2
    assert limit.take_suppressed() == 0
    assert not limit.allows(118)
    assert limit.wait_s(118) == 1
    assert limit.allows(119)
