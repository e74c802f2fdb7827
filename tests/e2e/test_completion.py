"""The shell completes names that the broker knows."""

from __future__ import annotations

import pytest

from support.drivers.commands import danube
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        for command in (
            "namespaces create shop",
            "topics create /shop/clicks --partitions 2",
            "topics create /shop/orders",
            "topics create /default/other",
            "subscriptions create /shop/orders -s billing",
            "subscriptions create /shop/orders -s audit",
        ):
            assert danube(*command.split(), url=broker.url).returncode == 0
        yield broker.url


def completed(line, url):
    """Return the words that bash is offered for the last word of *line*."""
    done = danube(
        url=url,
        _DANUBE_COMPLETE="complete_bash",
        COMP_WORDS=line,
        COMP_CWORD=str(line.count(" ")),
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("danube topics describe /sh", ["/shop/clicks", "/shop/orders"]),
        ("danube consume /shop/c", ["/shop/clicks"]),
        ("danube lag /default/", ["/default/other"]),
        ("danube subscriptions seek /shop/orders -s b", ["billing"]),
        ("danube subscriptions describe /shop/orders -s ", ["audit", "billing"]),
        ("danube subscriptions describe -s b", []),
        ("danube topics list --namespace s", ["shop", "system"]),
        ("danube namespaces delete sh", ["shop"]),
    ],
)
def test_names_are_completed(url, line, words):
    assert completed(line, url) == words


def test_nothing_is_completed_without_a_broker():
    assert completed("danube topics describe /sh", "danube://127.0.0.1:1") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_completes_commands_in_its_shell(shell):
    done = danube("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"complete_{shell}" in done.stdout


def test_script_for_an_unknown_shell_is_refused():
    done = danube("completion", "csh")
    assert (done.returncode, done.stdout) == (2, "")
    assert "fish" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "describe", "/shop/ordrs"),
        ("read", "/shop/ordrs"),
        ("lag", "/shop/ordrs"),
    ],
)
def test_missing_topic_suggests_one_that_exists(url, command):
    done = danube(*command, url=url)
    assert done.returncode == 3
    assert "did you mean '/shop/orders'?" in done.stderr


def test_missing_topic_suggests_nothing_where_nothing_resembles_it(url):
    done = danube("topics", "describe", "/elsewhere/x", url=url)
    assert done.returncode == 3
    assert "did you mean" not in done.stderr
