"""The parts of a debug bundle are bounded, and each may fail alone."""

from __future__ import annotations

import json
import os
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_broker.servers.settings.config import load_config
from pydanube_cli.diagnosis.debug_bundle import (
    LOG_BYTES_MAX,
    DebugBundle,
    Sources,
    describe_process,
    end_of_log,
    local_bundle,
    relevant_variables,
)

if TYPE_CHECKING:
    from pathlib import Path


def bundle_of(environ: dict[str, str], *logs: Path) -> DebugBundle:
    config = load_config(None, environ, {})
    return local_bundle(Sources(environ, "", "", logs, topics_max=1), config)


def test_secrets_of_settings_and_variables_are_in_no_file(tmp_path: Path) -> None:
    environ = {
        "DANUBE_METADATA__KIND": "etcd",
        "DANUBE_METADATA__ETCD__ENDPOINTS": "http://etcd:2379",
        "DANUBE_METADATA__ETCD__USER": "broker",
        "DANUBE_METADATA__ETCD__PASSWORD": "planted-one",
        "DANUBE_METADATA__ZOOKEEPER__USER": "broker",
        "DANUBE_METADATA__ZOOKEEPER__PASSWORD": "planted-five",
        "DANUBE_STORAGE__REMOTE__URL": "s3://bucket/danube",
        "DANUBE_STORAGE__REMOTE__OPTIONS": '{"secret_access_key": "planted-two"}',
        "AWS_SECRET_ACCESS_KEY": "planted-three",
        "HTTPS_PROXY": "http://me:planted-four@proxy",
    }
    log = tmp_path / "broker.log"
    log.write_text("".join(f"refused {value}\n" for value in environ.values()))
    bundle = bundle_of(environ, log)
    bundle.add_machine()
    bundle.write(tmp_path / "bundle.tar.gz")
    with tarfile.open(tmp_path / "bundle.tar.gz") as archive:
        contents = {
            member.name: file.read()
            for member in archive.getmembers()
            if (file := archive.extractfile(member))
        }
    assert not any(b"planted" in content for content in contents.values())
    settings = json.loads(contents["bundle/settings.json"])
    assert settings["storage.remote.url"] == "s3://bucket/danube"
    assert settings["metadata.etcd.password"] == "***"
    assert settings["metadata.zookeeper.password"] == "***"
    assert "bundle/logs/1-broker.log" in contents


def test_a_part_that_fails_is_listed_and_the_others_are_kept(tmp_path: Path) -> None:
    bundle = bundle_of({}, tmp_path / "no.log")

    def fail() -> Any:
        raise InvalidRequest("no broker at danube://:planted@host")

    bundle.add("topics.json", fail)
    bundle.add("other.json", lambda: {"is": "there"})
    bundle.add_machine()
    assert bundle.missing["topics.json"] == "no broker at danube://***@host"
    assert "no.log" in bundle.missing["logs/1-no.log"]
    assert json.loads(bundle.files["other.json"]) == {"is": "there"}


def test_an_archive_is_private_and_overwrites_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    bundle_of({}).write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        bundle_of({}).write(path)


def test_a_long_log_is_cut_to_its_last_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\n" + b"x" * LOG_BYTES_MAX + b"\nlast\n")
    assert end_of_log(log) == "last\n"


def test_the_process_of_a_broker_is_described(tmp_path: Path) -> None:
    (tmp_path / "LOCK").write_text(f"{os.getpid()}\n")
    described = describe_process(tmp_path)
    assert described["status"]["Threads"] == str(described["thread_count"])
    assert described["open_files"] > 0


def test_only_variables_of_brokers_and_stores_are_included() -> None:
    environ = {"DANUBE_DATA_DIR": "x", "HOME": "/root", "https_proxy": "http://p"}
    assert relevant_variables(environ) == {
        "DANUBE_DATA_DIR": "x",
        "https_proxy": "http://p",
    }
