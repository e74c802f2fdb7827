"""Features that need packages which are not installed name the extra."""

import tomllib

import pytest
from packaging.requirements import Requirement

from pydanube.model import extras
from pydanube.model.extras import EXTRAS, MissingExtra, extra_of, require
from support.project import ROOT

DISTRIBUTIONS = {
    "aio_pika": "aio-pika",
    "qdrant_client": "qdrant-client",
    "nats": "nats-py",
    "adbc_driver_postgresql": "adbc-driver-postgresql",
    "confluent_kafka": "confluent-kafka",
    "grpc": "grpcio",
    "grpc_tools": "grpcio-tools",
    "jsonschema_rs": "jsonschema-rs",
    "pymysqlreplication": "mysql-replication",
    "openlineage": "openlineage-python",
    "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "opentelemetry": "opentelemetry-api",
    "prometheus_client": "prometheus-client",
    "yaml": "pyyaml",
}
"""The distributions whose packages have other names."""


@pytest.mark.parametrize("extra", EXTRAS)
def test_extras_name_the_packages_that_pyproject_lists(extra):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = map(Requirement, project["optional-dependencies"][extra])
    assert {each.name for each in listed if each.name != "pydanube"} == {
        DISTRIBUTIONS.get(package, package) for package in EXTRAS[extra]
    }


def test_require_passes_if_the_packages_are_installed():
    for extra in EXTRAS:
        require(extra, "this test")


def test_require_names_the_missing_packages_and_the_command_that_installs_them(
    monkeypatch,
):
    monkeypatch.setitem(extras.EXTRAS, "cli", ("yaml", "no_such_a", "no_such_b"))
    with pytest.raises(MissingExtra) as missing:
        require("cli", "the command line of a test")
    assert str(missing.value) == (
        "the command line of a test needs packages that are not installed "
        "(no_such_a, no_such_b): pip install 'pydanube[cli]'"
    )


@pytest.mark.parametrize(
    ("module", "extra"),
    [("pyspark.sql", "spark"), ("yaml", "cli"), ("nowhere", None), (None, None)],
)
def test_a_module_leads_to_the_extra_that_installs_it(module, extra):
    assert extra_of(module) == extra
