"""Literal secrets are found by their names; references and other texts are none."""

from __future__ import annotations

import time

import pytest

from pydanube.declarations.pure.literal_secrets import literal_secrets


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"password": "x"}, ("password",)),
        ({"sasl": {"password": "x"}}, ("sasl", "password")),
        ({"api_key": "x"}, ("api_key",)),
        ({"secret_access_key": "x"}, ("secret_access_key",)),
        ({"headers": {"Authorization": "Bearer x"}}, ("headers", "Authorization")),
        ({"headers": [{"X-Api-Key": "x"}]}, ("headers", 0, "X-Api-Key")),
        ({"url": "amqp://guest:guest@localhost"}, ("url",)),
        ({"url": "http://h/?token=x&b=1"}, ("url",)),
        ({"dsn": "host=a password=x"}, ("dsn",)),
        ({"url": "https://hooks.slack.com/services/T0/B0/x"}, ("url",)),
        ({"url": "https://discord.com/api/webhooks/1/x"}, ("url",)),
        ({"url": "https://canary.discordapp.com/api/webhooks/1/x"}, ("url",)),
        ({"url": "https://a.webhook.office.com/webhookb2/x"}, ("url",)),
    ],
)
def test_literal_secret_is_found(options, path):
    assert list(literal_secrets(options)) == [path]


@pytest.mark.parametrize(
    "options",
    [
        None,
        {"password": "${env:PASSWORD}", "token": "${file:token}"},
        {"headers": {"Authorization": "Bearer ${env:TOKEN}"}},
        {"url": "postgresql://me:${env:PASSWORD}@localhost/db"},
        {"url": "http://h/?token=${file:token}"},
        {"dsn": "host=a password=${env:PASSWORD}"},
        {"url": "${file:slack_url}"},
        {"url": "https://hooks.slack.com/services/${env:SLACK_PATH}"},
        {"url": "https://discord.com/api/webhooks/1/${file:discord}"},
        {"url": "https://example.com/hooks.slack.com/x"},
        {"token_file": "token", "password": "", "key": "customer.id"},
        {"url": "nats://localhost:4222", "sender": "Danube <danube@example.com>"},
        {"subject": "{value.severity}: {value.summary}", "port": 5432},
    ],
)
def test_what_is_no_secret_is_not_found(options):
    assert list(literal_secrets(options)) == []


def test_the_time_for_a_text_is_in_proportion_to_its_length():
    begun_at = time.process_time()
    assert not list(literal_secrets({"url": "://:" * 16_000}))
    assert time.process_time() - begun_at < 1
