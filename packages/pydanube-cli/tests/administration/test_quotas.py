"""`danube security quotas`: setting, listing, describing and removing quotas."""

from __future__ import annotations

import json

import pytest

from support.drivers.commands import danube
from support.worlds.current import sync_memory_broker


@pytest.fixture
def run():
    """Return a function that runs ``danube security quotas``."""
    with sync_memory_broker() as broker:

        def run(*words, code=0):
            done = danube("security", "quotas", *words, url=broker.url)
            assert done.returncode == code, done.stdout + done.stderr
            return done.stdout or done.stderr

        yield run


def test_limits_that_are_not_named_do_not_change(run):
    run("set", "user:billing", "--bytes-in", "10MiB", "--connections", "20")
    shown = json.loads(
        run("set", "user:billing", "--requests", "5", "--format", "json")
    )
    assert shown["quota"] == {
        "connections": 20,
        "requests_per_s": 5,
        "topics": 0,
        "subscriptions": 0,
        "bytes_in_per_s": 10 * 1024 * 1024,
        "bytes_out_per_s": 0,
        "sessions": 0,
        "storage_bytes": 0,
    }
    run("set", "user:billing", "--connections", "0")
    text = run("list")
    assert "requests_per_s=5, bytes_in_per_s=10.0 MiB" in " ".join(text.split())
    assert "connections" not in text


def test_description_has_what_is_in_use(run):
    run("set", "anonymous", "--connections", "9")
    assert "9 (1 in use)" in run("describe", "anonymous")
    run("set", "/default", "--topics", "3", "--storage", "5GiB")
    shown = json.loads(run("describe", "/default", "--format", "json"))
    assert shown["used"]["topics"] == 0


def test_principal_without_a_quota_has_that_of_the_settings(run):
    assert "security.quota in the settings" in run("describe", "user:somebody")


def test_removed_quota_is_not_listed(run):
    run("set", "/default", "--topics", "3")
    run("remove", "/default", "--yes")
    assert json.loads(run("list", "--format", "json")) == []
    assert "/default has no quota" in run("remove", "/default", "--yes", code=3)


def test_wrong_limits_are_refused_with_those_that_are_allowed(run):
    assert "use --connections, --requests" in run("set", "/default", code=2)
    refused = run("set", "/default", "--connections", "1", code=2)
    assert "can have only the limits" in " ".join(refused.split())
    assert "user:NAME" in run("set", "billing", "--connections", "1", code=2)
