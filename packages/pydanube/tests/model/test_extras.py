"""Features that need packages which are not installed name the extra."""

import re
import tomllib
from functools import cache

import pytest
from packaging.requirements import Requirement

from pydanube.model import extras
from pydanube.model.extras import (
    EXTRAS,
    MissingExtra,
    extra_hint,
    extra_of,
    require,
)
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
    "opentelemetry.proto": "opentelemetry-proto",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "prometheus_client": "prometheus-client",
    "yaml": "pyyaml",
}
"""The distributions whose packages have other names."""


@cache
def projects():
    """Return the tables ``project`` of all distributions by name."""
    found = [
        tomllib.loads(path.read_text())["project"]
        for path in ROOT.glob("packages/*/pyproject.toml")
    ]
    return {each["name"]: each for each in found}


def needed(name, extra=None):
    """Return what the distribution *name* needs, or its *extra*."""
    project = projects()[name]
    if extra is None:
        return list(map(Requirement, project["dependencies"]))
    return list(map(Requirement, project.get("optional-dependencies", {})[extra]))


def installed(name, extra):
    """Return the distributions that *extra* installs: its own, and ours behind it."""
    found = set()
    for each in needed(name, extra):
        if each.name not in projects():
            found.add(each.name)
            continue
        if each.name != OURS:
            found |= {each.name, *(one.name for one in needed(each.name))}
        found |= set().union(*(installed(each.name, one) for one in each.extras))
    return found


@pytest.mark.parametrize("extra", EXTRAS)
def test_extras_install_the_packages_that_they_name(extra):
    named = {DISTRIBUTIONS.get(each, each.replace("_", "-")) for each in EXTRAS[extra]}
    assert named <= installed(OURS, extra)


def test_every_extra_of_users_names_a_package():
    extras = projects()[OURS]["optional-dependencies"].keys() - {"all"}
    assert extras == EXTRAS.keys()


def test_all_includes_every_extra_of_users():
    everything = installed(OURS, "all")
    assert all(
        installed(OURS, extra) <= everything
        for extra in projects()[OURS]["optional-dependencies"]
    )


def test_the_guide_lists_every_extra():
    guide = (ROOT / "docs/guide/install.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \|", guide, re.MULTILINE)
    assert set(rows) == projects()[OURS]["optional-dependencies"].keys()


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


def test_a_name_that_is_an_extra_says_how_to_install_it():
    assert extra_hint("zookeeper") == ("; pip install 'pydanube[zookeeper]' brings it")
    assert extra_hint("zoo") == ""
