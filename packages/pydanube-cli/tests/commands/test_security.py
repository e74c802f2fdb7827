"""`danube security`: roles, bindings, and questions about them."""

from __future__ import annotations

import json

import pytest

from support.drivers.commands import danube
from support.worlds.current import sync_memory_broker


@pytest.fixture
def ask():
    """Return a function that runs ``danube security`` and returns its JSON."""
    with sync_memory_broker() as broker:

        def run(*words, code=0):
            done = danube("security", *words, "--format", "json", url=broker.url)
            assert done.returncode == code, done.stderr
            return json.loads(done.stdout) if done.stdout else done.stderr

        yield run


def test_role_is_set_shown_and_deleted(ask):
    ask(
        "roles", "set", "r", "--allow", "produce", "--allow", "describe", "--on", "/a/*"
    )
    shown = ask("roles", "show", "r")
    assert shown == {
        "name": "r",
        "permissions": ["describe", "produce"],
        "patterns": ["/a/*"],
        "is_built_in": False,
    }
    assert shown in ask("roles", "list")
    ask("roles", "delete", "r")
    assert "no role 'r'" in ask("roles", "show", "r", code=3)


def test_binding_decides_until_it_is_removed(ask):
    added = ask("bindings", "add", "user:a", "producer", "--on", "/a/*", "--id", "b")
    assert ask("bindings", "list") == [added]
    decided = ask("can", "user:a", "produce", "/a/b")
    assert decided == {
        "allowed": True,
        "rule": "the role 'producer' by the binding 'b' of user:a",
        "is_enforced": False,
    }
    ask("bindings", "remove", "b")
    assert not ask("can", "user:a", "produce", "/a/b", code=1)["allowed"]


def test_who_am_i_says_that_nothing_is_enforced(ask):
    assert ask("whoami") == {
        "name": "anonymous",
        "method": "anonymous",
        "groups": [],
        "is_superuser": False,
        "is_enforced": False,
    }


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("can", "alice", "produce", "/a/b"), "user:NAME"),
        (("can", "user:a", "fly", "/a/b"), "there is no permission 'fly'"),
        (("can", "user:a", "produce", "/a/../b"), "invalid format"),
        (("bindings", "add", "user:a", "viewer", "--on", "a"), "must be cluster"),
        (("roles", "set", "admin", "--allow", "produce"), "built in"),
    ],
)
def test_mistake_is_explained(ask, words, reason):
    assert reason in ask(*words, code=2)
