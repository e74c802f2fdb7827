"""The compose files, the image and the unit of systemd in deploy/."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pydanube_broker.servers.settings.config import load_config
from support.drivers.commands import danube
from support.project import ROOT
from support.servers.ports import free_port
from support.servers.processes import BrokerProcess

DEPLOY = ROOT / "deploy"
DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")
COMPOSE_FILES = sorted(DEPLOY.glob("compose*.yaml"))
UNIT = DEPLOY / "systemd" / "danube.service"
IMAGE = (DEPLOY / "Dockerfile").read_text()
HEALTH_CHECK = DEPLOY / "health-check.py"


def read(path: Path) -> dict[str, Any]:
    """Return a compose file, with the services that it extends."""
    found: dict[str, Any] = yaml.safe_load(DEFAULT.sub(r"\1", path.read_text()))
    for name, service in found["services"].items():
        if base := service.pop("extends", None):
            other = read(DEPLOY / base["file"])["services"][base["service"]]
            found["services"][name] = other | service
    return found


def services_of(path: Path) -> list[dict[str, Any]]:
    return list(read(path)["services"].values())


@pytest.mark.parametrize("path", COMPOSE_FILES, ids=lambda path: path.name)
def test_compose_files_name_files_volumes_and_services_that_exist(path: Path) -> None:
    compose = read(path)
    mounted = [
        mount.split(":")[0]
        for service in compose["services"].values()
        for mount in service.get("volumes", [])
    ]
    for source in mounted:
        if source.startswith("."):
            assert (DEPLOY / source).exists(), source
    named = {source for source in mounted if not source.startswith(".")}
    assert named <= compose["volumes"].keys()
    for service in compose["services"].values():
        assert set(service.get("depends_on", [])) <= compose["services"].keys()
        # A tag, because the meaning of "latest" changes.
        assert (
            service["image"] == "pydanube"
            or ":v" in service["image"]
            or re.search(r":\d", service["image"])
        )


@pytest.mark.parametrize("name", ["compose-broker.yaml", "compose-monitoring.yaml"])
def test_a_broker_in_a_container_has_few_rights(name: str) -> None:
    broker = read(DEPLOY / name)["services"]["broker"]
    assert broker["read_only"]
    assert broker["cap_drop"] == ["ALL"]
    for service in services_of(DEPLOY / name):
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    load_config(None, broker["environment"], {})


@pytest.mark.soak
@pytest.mark.parametrize("path", COMPOSE_FILES, ids=lambda path: path.name)
def test_docker_compose_accepts_the_files(path: Path, tmp_path: Path) -> None:
    program = shutil.which("docker-compose")
    assert program, "this test needs docker-compose: apt-get install docker-compose"
    # Debian's version does not know the name of a project in the file.
    for each in COMPOSE_FILES:
        text = re.sub(r"^name: .*$", "", each.read_text(), flags=re.MULTILINE)
        (tmp_path / each.name).write_text(text)
    check = [program, "--file", str(tmp_path / path.name), "config", "--quiet"]
    done = subprocess.run(check, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_prometheus_scrapes_the_broker_and_has_the_alerts() -> None:
    settings = yaml.safe_load((DEPLOY / "monitoring/prometheus.yaml").read_text())
    [job] = settings["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["broker:8080"]}]
    mounts = read(DEPLOY / "compose-monitoring.yaml")["services"]["prometheus"][
        "volumes"
    ]
    targets = {mount.split(":")[1] for mount in mounts}
    for name in settings["rule_files"]:
        assert f"/etc/prometheus/{name}" in targets


def test_grafana_finds_the_dashboards() -> None:
    provider = yaml.safe_load((DEPLOY / "monitoring/dashboards.yaml").read_text())
    grafana = read(DEPLOY / "compose-monitoring.yaml")["services"]["grafana"]
    path = provider["providers"][0]["options"]["path"]
    assert f"./grafana:{path}:ro" in grafana["volumes"]


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return parser


def test_the_unit_starts_the_broker_with_settings_that_exist(tmp_path: Path) -> None:
    service = unit()["Service"]
    program, command, option, file = service["ExecStart"].split()
    assert (program, command, option) == (
        "/opt/danube/bin/danube",
        "broker",
        "--config",
    )
    assert file.startswith("/etc/danube/")
    pairs = [each.split("=") for each in service["Environment"].split()]
    environ = {name: value for name, value in pairs if name.startswith("DANUBE_")}
    config = load_config(None, environ, {})
    assert str(config.data_dir) == f"/var/lib/{service['StateDirectory']}"
    assert int(service["LimitNOFILE"]) >= 16_384


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed"
)
def test_systemd_accepts_the_unit_and_finds_it_safe(tmp_path: Path) -> None:
    installed = tmp_path / UNIT.name
    text = UNIT.read_text().replace("/opt/danube/bin/danube", sys.executable)
    installed.write_text(text)
    for check in (["verify"], ["security", "--offline=yes", "--threshold=20"]):
        done = subprocess.run(
            ["systemd-analyze", *check, str(installed)],
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "danube.service:" not in done.stderr


def instruction(name: str) -> list[str]:
    """Return the last instruction *name* of the image, in its form as JSON."""
    found = re.findall(rf"^{name} .*?(\[.*\])$", IMAGE, re.MULTILINE)
    words: list[str] = json.loads(found[-1])
    return words


def image_variables() -> dict[str, str]:
    [line] = re.findall(r"^ENV (.*)$", IMAGE, re.MULTILINE)
    return dict(word.split("=", 1) for word in line.split())


def test_the_image_runs_as_a_user_without_rights() -> None:
    assert re.findall(r"^USER (\d+)$", IMAGE, re.MULTILINE) == ["6651"]
    health_check = instruction("HEALTHCHECK .*CMD")[-1]
    assert f"COPY deploy/{HEALTH_CHECK.name} {health_check}" in IMAGE
    assert image_variables()["DANUBE_DATA_DIR"] in re.findall(r"VOLUME (\S+)", IMAGE)


@pytest.mark.e2e
@pytest.mark.slow
def test_the_entry_point_demands_security_or_the_word_insecure(tmp_path: Path) -> None:
    words = instruction("ENTRYPOINT") + instruction("CMD")
    assert words == ["danube", "broker"]
    given = image_variables() | {"DANUBE_DATA_DIR": str(tmp_path)}
    environ = {name: value for name, value in given.items() if "DANUBE" in name}
    done = danube(*words[1:], **environ)
    assert done.returncode != 0
    assert "insecure" in done.stderr


def health(port: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(HEALTH_CHECK)],
        check=False,
        env=os.environ | {"DANUBE_LISTEN__HTTP_PORT": str(port)},
        capture_output=True,
        text=True,
    )


@pytest.mark.e2e
@pytest.mark.slow
def test_the_health_check_knows_whether_the_broker_serves_topics(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        done = health(broker.http_port)
        assert done.returncode == 0, done.stderr
        # A port that answers, but not as the HTTP port of a broker.
        assert health(broker.stream_port).returncode == 1
    done = health(free_port())
    assert done.returncode == 1
    assert "http:" in done.stderr
