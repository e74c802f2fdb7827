"""Features that need packages which are not installed name the extra."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement

from pydanube.model import extras
from pydanube.model.extras import EXTRAS, MissingExtra, extra_of, require
from support.project import ROOT

OURS = "pydanube"
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
    "prometheus_client": "prometheus-client",
    "yaml": "pyyaml",
}
"""The distributions whose packages have other names."""


@pytest.mark.parametrize("extra", EXTRAS)
def test_extras_name_the_packages_that_pyproject_lists(extra):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = map(Requirement, project["optional-dependencies"][extra])
    assert {each.name for each in listed if each.name != OURS} == {
        DISTRIBUTIONS.get(package, package) for package in EXTRAS[extra]
    }


def included(extra):
    """The extras that *extra* includes, and those that they include, with itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = {extra}
    for each in map(Requirement, project["optional-dependencies"][extra]):
        if each.name == OURS:
            found |= set().union(*map(included, each.extras))
    return found


def test_all_includes_every_extra_of_users():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert included("all") == set(project["optional-dependencies"]) - {"dev"}


def test_the_guide_lists_every_extra_with_those_that_it_includes():
    guide = (ROOT / "docs/guide/install.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \|.*\| (.*?) ?\|$", guide, re.MULTILINE)
    listed = {name: set(re.findall(r"`([\w-]+)`", text)) for name, text in rows}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    expected = {
        name: set().union(
            *(each.extras for each in map(Requirement, needed) if each.name == OURS)
        )
        for name, needed in project["optional-dependencies"].items()
    }
    assert listed | {"all": expected["all"]} == expected


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
