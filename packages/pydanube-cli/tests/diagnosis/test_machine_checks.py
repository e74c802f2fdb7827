"""The checks of a machine."""

from datetime import UTC, datetime, timedelta

import pytest

from pydanube_broker.servers.settings.config import BrokerConfig, TlsConfig
from pydanube_cli.administration.development_certificates import (
    write_development_certificates,
)
from pydanube_cli.diagnosis.findings import Verdict
from pydanube_cli.diagnosis.machine_checks import (
    SYNC_COUNT,
    available_memory,
    check_machine,
    measure_syncs,
)

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def found(check, config):
    return [each for each in check_machine(config, NOW) if each.check == check]


def test_nothing_stays_in_the_directory(tmp_path):
    assert len(measure_syncs(tmp_path)) == SYNC_COUNT
    assert not list(tmp_path.iterdir())


def test_a_directory_that_does_not_exist_is_not_created(tmp_path):
    config = BrokerConfig(data_dir=tmp_path / "new" / "data")
    (space,) = found("free disk space", config)
    assert space.found.startswith(f"{tmp_path}: ")
    assert not (tmp_path / "new").exists()


def test_available_memory_is_read_from_the_kernel(tmp_path):
    file = tmp_path / "meminfo"
    file.write_text("MemTotal:  24 kB\nMemAvailable:    7 kB\n")
    assert available_memory(file) == 7 * 1024
    assert available_memory(tmp_path / "missing") is None


@pytest.mark.parametrize(
    ("days_ago", "verdict"),
    [(0, Verdict.OK), (340, Verdict.WARNING), (400, Verdict.PROBLEM)],
)
def test_the_certificate_of_the_broker_is_checked(tmp_path, days_ago, verdict):
    then = NOW - timedelta(days=days_ago)
    write_development_certificates(tmp_path, ["localhost"], now=then)
    tls = TlsConfig(
        certificate_file=str(tmp_path / "server.pem"),
        key_file=str(tmp_path / "server-key.pem"),
    )
    (finding,) = found("certificate", BrokerConfig(data_dir=tmp_path, tls=tls))
    assert finding.verdict is verdict


def test_a_file_that_is_no_certificate_is_a_problem(tmp_path):
    (tmp_path / "server.pem").write_text("no certificate")
    tls = TlsConfig(certificate_file=str(tmp_path / "server.pem"), key_file="key")
    (finding,) = found("certificate", BrokerConfig(data_dir=tmp_path, tls=tls))
    assert finding.verdict is Verdict.PROBLEM
