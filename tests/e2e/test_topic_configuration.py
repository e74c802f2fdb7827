"""`danube topics configure` and `edit` change topics of a broker."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from support.commands import danube
from support.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def process_url(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.url


@pytest.fixture
def topic(url, request):
    name = "/default/" + re.sub(r"\W+", "-", request.node.name).strip("-")
    assert danube("topics", "create", name, url=url).returncode == 0
    return name


def described(url, topic):
    done = danube("topics", "describe", topic, "--format", "json", url=url)
    return json.loads(done.stdout)


def kept(done):
    """Return the file that an error says the document is in."""
    return Path(done.stderr.split("--file ")[1].split("'")[0])


def test_changes_are_shown_and_made(url, topic):
    words = ["topics", "configure", topic, "--set", "retention.age=7d"]
    words += ["--set", "on_corruption=skip", "--set", "sealing.size=1MiB"]
    words += ["--set", "limits.max_publish_rate=1000"]
    planned = danube(*words, "--dry-run", url=url)
    assert planned.stdout.startswith(f"{topic} would change:\n")
    assert described(url, topic)["policy"]["on_corruption"] == "stop"
    done = danube(*words, url=url)
    assert [line.split() for line in done.stdout.splitlines()[3:]] == [
        ["on_corruption", "stop", "skip"],
        ["retention", "inherit", "age=7d,", "size=none,", "acknowledged=no"],
        ["sealing.size", "default", "1MiB"],
        ["limits", "inherit", "max_publish_rate=1000"],
    ]
    found = described(url, topic)
    assert found["policy"]["on_corruption"] == "skip"
    assert found["policy"]["retention"]["age_s"] == 604800
    assert found["policy"]["seal_bytes"] == 1024 * 1024
    assert found["own_limits"]["max_publish_rate"] == 1000
    assert danube(*words, url=url).stdout == f"{topic} has these settings already.\n"


def test_schema_is_bound_and_removed(url, topic):
    schema = ["schemas", "register", "numbers", "--type", "number"]
    assert danube(*schema, url=url).returncode == 0
    configure = ["topics", "configure", topic, "--format", "json", "--set"]
    bound = danube(*configure, "schema.subject=numbers", url=url)
    assert json.loads(bound.stdout)["changes"][0]["new"]["subject"] == "numbers"
    assert described(url, topic)["schema"]["subject"] == "numbers"
    assert danube(*configure, "schema=none", url=url).returncode == 0
    assert described(url, topic)["schema"] is None


def test_one_wrong_change_refuses_all(url, topic):
    words = ["topics", "configure", topic, "--set", "schema.subject=nothing"]
    before = described(url, topic)
    done = danube(*words, "--set", "limits.max_publish_rate=9", url=url)
    assert done.returncode == 3
    assert "'nothing' not found" in done.stderr
    assert described(url, topic) == before


def test_partitions_change_together(url):
    create = ["topics", "create", "/default/parts", "--partitions", "2"]
    assert danube(*create, url=url).returncode == 0
    done = danube(
        *("topics", "configure", "/default/parts", "--set", "on_corruption=skip"),
        url=url,
    )
    assert done.returncode == 0
    found = described(url, "/default/parts")["partitions"]
    assert [each["policy"]["on_corruption"] for each in found] == ["skip", "skip"]


def test_editor_changes_a_topic(url, topic):
    done = danube("topics", "edit", topic, url=url, EDITOR="sed -i s/stop/skip/")
    assert done.returncode == 0, done.stderr
    assert "on_corruption  stop  skip" in done.stdout
    assert described(url, topic)["policy"]["on_corruption"] == "skip"


def test_unchanged_document_changes_nothing(url, topic):
    done = danube("topics", "edit", topic, url=url, EDITOR="true")
    assert done.stdout == f"{topic} has these settings already.\n"


@pytest.mark.parametrize(
    ("editor", "message"),
    [
        ("false", "the editor 'false' ended with code 1; nothing is changed"),
        ("/nonexistent/vi", "the editor '/nonexistent/vi' cannot be started"),
    ],
)
def test_failed_editor_changes_nothing(url, topic, editor, message):
    done = danube("topics", "edit", topic, url=url, VISUAL=editor)
    assert done.returncode == 2
    assert message in done.stderr


def test_invalid_document_is_kept_and_can_be_corrected(url, topic):
    done = danube("topics", "edit", topic, url=url, EDITOR="sed -i s/stop/stopp/")
    assert done.returncode == 2
    assert "on_corruption: 'stopp' is not stop or skip" in done.stderr
    path = kept(done)
    path.write_text(path.read_text().replace("stopp", "skip"))
    done = danube("topics", "edit", topic, "--file", str(path), url=url)
    assert done.returncode == 0, done.stderr
    path.unlink()
    assert described(url, topic)["policy"]["on_corruption"] == "skip"


def test_change_in_the_meantime_is_not_overwritten(url, topic, tmp_path):
    editor = tmp_path / "editor"
    editor.write_text(
        "#!/bin/sh\n"
        f'sed -i s/stop/skip/ "$1"; "$PYTHON" -m pydanube topics set-sealing {topic}'
        f" --size 1MiB --url {url}\n"
    )
    editor.chmod(0o700)
    done = danube(
        "topics", "edit", topic, url=url, EDITOR=str(editor), PYTHON=sys.executable
    )
    assert f"the settings of {topic} changed in the meantime" in done.stderr
    kept(done).unlink()
    assert described(url, topic)["policy"]["on_corruption"] == "stop"


def test_document_comes_from_standard_input(url, topic):
    words = ["topics", "edit", topic, "--file", "-"]
    done = danube(*words, url=url, stdin="sealing: {age: 2h}\n")
    assert done.returncode == 0, done.stderr
    assert described(url, topic)["policy"]["seal_age_s"] == 7200
    done = danube(*words, url=url, stdin="sealing: [")
    assert "error: the document is not YAML" in done.stderr
