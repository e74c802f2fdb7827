"""`danube debug bundle` with a real broker, and without one."""

from __future__ import annotations

import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

import pydanube.sync
from support.drivers.commands import danube
from support.servers.ports import free_port
from support.servers.processes import BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def bundle(
    path: Path, *options: str, **variables: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what the command prints, and the files of the archive."""
    output = ("--output", str(path), "--format", "json")
    done = danube("debug", "bundle", *output, *options, **variables)
    assert done.returncode == 0, done.stderr
    with tarfile.open(path) as archive:
        files = {
            member.name.partition("/")[2]: archive.extractfile(member)
            for member in archive.getmembers()
        }
        return json.loads(done.stdout), {
            name: file.read().decode() for name, file in files.items() if file
        }


def test_a_bundle_has_the_state_of_a_broker_and_no_messages(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    with BrokerProcess(tmp_path / "data", log_file=log) as broker:
        with pydanube.sync.connect(broker.url) as client:
            with client.producer("/default/a") as producer:
                producer.send(b"private payload", key="private key")
            client.topics.create("/default/b")
        printed, files = bundle(
            tmp_path / "found.tar.gz",
            *("--url", broker.url, "--http-url", broker.http_url),
            *("--data-dir", str(tmp_path / "data"), "--log", str(log)),
            *("--topics", "1"),
        )
    assert not printed["missing"]
    topics = json.loads(files["topics.json"])
    assert topics["topic_count"] == 2
    assert [each["topic"] for each in topics["topics"]] == ["/default/a"]
    assert json.loads(files["process.json"])["pid"] > 0
    assert json.loads(files["readiness.json"]) == {"ready": True}
    assert "danube_topic" in files["metrics.txt"]
    assert "serving after" in files["logs/1-broker.log"]
    checks = {each["check"] for each in json.loads(files["findings.json"])}
    assert {"broker", "disk latency"} <= checks
    assert not any("private" in text for text in files.values())


def test_a_bundle_is_made_without_a_broker(tmp_path: Path) -> None:
    port = free_port()
    printed, files = bundle(
        tmp_path / "found.tar.gz",
        *("--url", f"danube://:planted-token@127.0.0.1:{port}?wait_s=0"),
        *("--http-url", f"http://127.0.0.1:{port}", "--data-dir", str(tmp_path)),
    )
    expected = {"process.json", "topics.json", "metrics.txt", "cluster.json"}
    assert (
        expected
        <= printed["missing"].keys()
        == json.loads(files["missing.json"]).keys()
    )
    assert "versions.json" in files
    assert not any("planted" in text for text in [*files.values(), str(printed)])


def test_invalid_settings_are_missing_from_a_bundle_and_do_not_prevent_it(
    tmp_path: Path,
) -> None:
    port = free_port()
    printed, files = bundle(
        tmp_path / "found.tar.gz",
        *("--url", f"danube://127.0.0.1:{port}?wait_s=0"),
        *("--http-url", f"http://127.0.0.1:{port}"),
        DANUBE_UNKNOWN="1",
    )
    assert "DANUBE_UNKNOWN" in json.loads(files["missing.json"])["settings.json"]
    assert {"settings.json", "process.json"} <= printed["missing"].keys()
    assert "versions.json" in files
