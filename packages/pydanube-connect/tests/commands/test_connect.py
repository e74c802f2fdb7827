"""Tests of `danube connect`."""

import json
from pathlib import Path

import pytest

from support.drivers.commands import danube
from support.worlds.current import sync_memory_broker

VALID = """
connectors:
  numbers: {kind: generator-source, topic: /default/numbers, options: {count: 5}}
"""


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "numbers.yaml"
    file.write_text(VALID)
    return str(file)


def test_valid_file_is_listed(file):
    done = danube("connect", "validate", file, "--format", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {
        "problems": [],
        "connectors": [
            {
                "connector": "numbers",
                "kind": "generator-source",
                "direction": "source",
                "topic": "/default/numbers",
            }
        ],
    }


def test_problems_are_printed_with_their_lines(tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text(VALID.replace("count", "cuont"))
    for command in ("validate", "run"):
        done = danube("connect", command, str(file))
        assert done.returncode == 2
        assert "line 3: connectors.numbers.options.cuont" in done.stderr
        assert "did you mean 'count'?" in done.stderr


def test_names_of_connectors_differ(file):
    done = danube("connect", "validate", file, file)
    assert done.returncode == 2
    assert "the names of connectors differ" in done.stderr


def test_connectors_run_to_their_end(file):
    with sync_memory_broker() as broker, broker.connect() as client:
        done = danube("connect", "run", file, "--format", "json", url=broker.url)
        last = json.loads(done.stdout.splitlines()[-1])
        assert (done.returncode, last["state"], last["messages"]) == (0, "finished", 5)
        assert client.topics.describe("/default/numbers").message_count == 5


def test_exit_code_tells_that_a_connector_has_failed(tmp_path):
    (tmp_path / "own.py").write_text(
        "from pydanube_connect import ConnectorFailed, Source\n"
        "class Failing(Source):\n"
        "    async def batches(self, position):\n"
        "        raise ConnectorFailed('no such table')\n"
        "        yield\n"
    )
    file = tmp_path / "failing.yaml"
    file.write_text("connectors: {f: {kind: 'own.py:Failing', topic: /default/f}}")
    with sync_memory_broker() as broker:
        done = danube("connect", "run", str(file), url=broker.url)
    assert done.returncode == 1
    assert done.stdout.endswith("f: failed, 0 messages, last error: no such table\n")


def test_trials_are_shown_as_they_end(tmp_path):
    (tmp_path / "own.py").write_text(
        "import asyncio\n"
        "from pydanube_connect import Source\n"
        "class Silent(Source):\n"
        "    async def check(self):\n"
        "        await asyncio.Event().wait()\n"
        "    async def batches(self, position):\n"
        "        yield\n"
    )
    file = tmp_path / "both.yaml"
    text = VALID.replace(
        "connectors:\n",
        "connectors:\n  s: {kind: 'own.py:Silent', topic: /default/s}\n",
    )
    file.write_text(text.replace("count: 5", "count: 1"))
    with sync_memory_broker() as broker:
        done = danube("connect", "test", str(file), "--timeout", "1s", url=broker.url)
    assert done.returncode == 1
    first, sample, last = done.stdout.splitlines()
    assert first.startswith("numbers (generator-source, /default/numbers): ok: ")
    assert sample == '  /default/numbers  {"number":0}'
    assert last.startswith(
        "s (own.py:Silent, /default/s): failed: no answer within 1 s"
    )


def test_kinds_and_their_options_are_listed():
    assert "webhook" in danube("connect", "kinds").stdout
    options = json.loads(
        danube("connect", "kinds", "mqtt-source", "--format", "json").stdout
    )
    assert options[0]["name"] == "client_id"
    unknown = danube("connect", "kinds", "mqqt-source")
    assert unknown.returncode == 2
    assert "did you mean 'mqtt-source'?" in unknown.stderr


def test_stored_connectors_are_applied_shown_paused_and_deleted(file):
    with sync_memory_broker() as broker:

        def connect(*arguments):
            return danube("connect", *arguments, url=broker.url)

        planned = connect("apply", file, "--dry-run")
        assert planned.stdout == (
            "numbers: created\nNothing has changed, this is a dry run.\n"
        )
        assert json.loads(connect("list", "--format", "json").stdout) == []
        assert connect("apply", file).stdout == "numbers: created\n"
        assert connect("apply", file).stdout == "numbers: unchanged\n"
        shown = connect("show", "numbers").stdout
        assert "# problem: no worker has run it" in shown
        Path(file).write_text(shown.replace("count: 5", "count: 6"))
        changed = connect("apply", file)
        assert changed.stdout == "numbers: changed\n  options.count: 5 → 6\n"
        assert connect("pause", "numbers").stdout == "numbers will pause\n"
        [row] = json.loads(connect("list", "--format", "json").stdout)
        assert (row["health"], row["revision"]) == ("paused", 2)
        assert connect("delete", "numbers", "--yes").returncode == 0
        unknown = connect("pause", "numbers")
        assert unknown.returncode == 3
        assert "no process runs a connector numbers of a file here" in unknown.stderr


def test_secret_in_plain_text_is_not_applied(file):
    Path(file).write_text(
        "connectors:\n  a:\n    kind: http-sink\n    topic: /default/a\n"
        "    options: {url: 'http://me:secret@h/'}\n"
    )
    with sync_memory_broker() as broker:
        done = danube("connect", "apply", file, url=broker.url)
        assert done.returncode == 2
        assert "line 5: connectors.a.options.url: is a secret in plain" in done.stderr
        listed = danube("connect", "list", "--format", "json", url=broker.url)
        assert json.loads(listed.stdout) == []
