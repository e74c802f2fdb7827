"""``danube security keys`` against a broker in a process of its own."""

from __future__ import annotations

import json
import re

import pytest

from support.drivers.commands import danube
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture
def broker(tmp_path):
    settings = tmp_path / "broker.yaml"
    settings.write_text(
        "security:\n"
        "  enabled: true\n"
        f"  bootstrap_key_file: {tmp_path / 'bootstrap.key'}\n"
    )
    log_file = tmp_path / "log"
    options = ("--config", str(settings), "--log-level", "debug")
    with BrokerProcess(tmp_path / "data", *options, log_file=log_file) as broker:
        yield broker


def test_keys_are_created_listed_rotated_and_revoked(broker, tmp_path):
    admin = (tmp_path / "bootstrap.key").read_text().strip()
    secrets = [admin]

    def run(*arguments, key=admin, code=0):
        done = danube(*arguments, url=broker.url, DANUBE_API_KEY=key)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    created = run("security", "keys", "create", "billing", "--expires", "90d")
    [key] = re.findall(r"danube_\S+", created.stdout)
    secrets.append(key)
    assert "cannot be shown again" in created.stderr
    assert run("topics", "list", key=key).returncode == 0

    listed = run("security", "keys", "list", "--format", "json")
    [described] = json.loads(listed.stdout)
    assert described["name"] == described["principal"] == "billing"
    assert key.startswith(f"danube_{described['key_id']}_")
    assert key not in listed.stdout
    assert "billing" in run("security", "keys", "list").stdout

    rotated = run("security", "keys", "rotate", "billing", "--format", "json")
    secrets.append(json.loads(rotated.stdout)["key"])
    for each in secrets:
        run("topics", "list", key=each)

    file = tmp_path / "key"
    run("security", "keys", "rotate", "billing", "--grace", "0", "--output", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    secrets.append(file.read_text().strip())
    for each in secrets[1:3]:
        refused = run("topics", "list", key=each, code=6)
        assert "is unknown, was revoked, or has expired" in refused.stderr
        assert each not in refused.stdout + refused.stderr
    run("topics", "list", key=secrets[3])

    run("security", "keys", "revoke", "billing", "--yes")
    run("topics", "list", key=secrets[3], code=6)
    run("security", "keys", "revoke", "billing", "--yes", code=3)
    broker.stop()
    log = broker.log_file.read_text()
    assert "refusing the credentials" in log
    for each in secrets:
        assert each.split("_", 2)[2] not in log


def test_a_key_is_not_lost_with_its_file(broker, tmp_path):
    admin = (tmp_path / "bootstrap.key").read_text().strip()
    file = tmp_path / "key"
    create = ("security", "keys", "create", "billing", "--output", str(file))
    # Nothing is created, and no file is left, if one of both is not possible.
    done = danube(
        *create, url=broker.url, DANUBE_API_KEY=f"danube_{'0' * 16}_{'a' * 43}"
    )
    assert done.returncode == 6
    assert not file.exists()
    file.write_text("something else")
    done = danube(*create, url=broker.url, DANUBE_API_KEY=admin)
    assert done.returncode == 2
    assert "cannot be created" in done.stderr
    assert file.read_text() == "something else"
    done = danube("security", "keys", "list", url=broker.url, DANUBE_API_KEY=admin)
    assert "billing" not in done.stdout


def test_without_credentials_commands_say_what_to_do(broker):
    done = danube("topics", "list", url=broker.url)
    assert done.returncode == 6
    assert "DANUBE_API_KEY" in done.stderr


def test_a_bootstrap_key_is_created_without_a_broker(tmp_path):
    file = str(tmp_path / "bootstrap.key")
    assert danube("security", "keys", "bootstrap", file).returncode == 0
    again = danube("security", "keys", "bootstrap", file)
    assert again.returncode == 2
    assert "File exists" in again.stderr
