"""Tests of the parsing of pipeline files."""

from dataclasses import replace

import pytest

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube_spark.pipelines.loading import load, locate
from pydanube_spark.pipelines.pure.spec import Trigger, TriggerKind
from pydanube_spark.pipelines.templates import DECLARATIVE, templates

GOOD = """\
name: orders
parameters: {topic: /default/orders, secret: "${env:PASSWORD}"}
sources: {orders: {topic: "${topic}"}}
sinks:
  out: {input: orders, format: noop, options: {password: "${secret}"}}
  slow: {input: orders, format: noop, trigger: {every: 1m}}
"""
ENVIRONMENT = {"PASSWORD": "hunter2"}


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "p.yaml"
        path.write_text(text)
        return path

    return write


def problems_of(path, **more):
    with pytest.raises(InvalidDeclaration) as caught:
        load(path, **more)
    return {each.path: each for each in caught.value.problems}


def test_file_is_parsed_into_a_pipeline(write):
    path = write(GOOD)
    found = load(path, parameters={"topic": "/default/o2"}, environment=ENVIRONMENT)
    assert found.name == "orders"
    assert found.spec.sources["orders"].topic == "/default/o2"
    assert found.broker == "danube://127.0.0.1:6651"
    assert found.state.path == path.parent / ".danube/pipelines/orders"
    assert found.redact("x hunter2") == "x ***"
    every = Trigger(TriggerKind.EVERY, 60)
    assert found.trigger_of(found.spec.sinks["slow"]) == every
    assert found.trigger_of(found.spec.sinks["out"]).ends
    continuous = replace(found, trigger=Trigger(TriggerKind.CONTINUOUS))
    assert not continuous.trigger_of(found.spec.sinks["out"]).ends


def test_graph_that_is_shown_has_no_secrets(write):
    path = write(GOOD.replace("format: noop,", "format: noop, path: '/a/${secret}',"))
    found = load(path, environment=ENVIRONMENT)
    assert "hunter2" in str(found.graph())
    assert "hunter2" not in str(found.graph_shown())
    assert [node.id for node in found.graph_shown().nodes] == [
        "source.orders",
        "sink.out",
        "sink.slow",
    ]


def test_broker_is_from_the_file_or_the_environment(write):
    url = {"DANUBE_URL": "danube://there:1", **ENVIRONMENT}
    assert load(write(GOOD), environment=url).broker == "danube://there:1"
    named = write(f"broker: danube://here:2\n{GOOD}")
    assert load(named, environment=url).broker == "danube://here:2"


def test_problems_have_lines_and_no_secrets(write):
    path = write(GOOD.replace("format: noop, trigger", "mode: '${secret}', trigger"))
    found = problems_of(path, environment=ENVIRONMENT)
    assert found["sinks.slow.mode"].line == 6
    assert "'***'" in found["sinks.slow.mode"].message


def test_missing_secret_is_found_without_spark(write):
    found = problems_of(write(GOOD), environment={"PASSWORT": "x"})
    assert "did you mean 'PASSWORT'?" in found["parameters.secret"].message


def test_unreadable_file_is_a_problem(tmp_path):
    found = problems_of(tmp_path / "none.yaml")
    assert "No such file" in found[""].message


def test_state_directory_is_found_in_an_invalid_file(write):
    path = write(GOOD)
    name, state = locate(path, {}, {})
    assert (name, state.path) == ("orders", path.parent / ".danube/pipelines/orders")
    own = write(f"checkpoints: {{path: '${{topic}}/x'}}\n{GOOD}")
    name, state = locate(own, {"topic": "state"}, ENVIRONMENT)
    assert (name, state.path) == ("orders", path.parent / "state/x")
    with pytest.raises(InvalidDeclaration, match="name: is missing"):
        locate(write("sources: {}"), {}, {})
    with pytest.raises(InvalidDeclaration, match="is not a parameter"):
        locate(write("name: ${nope}"), {}, {})


@pytest.mark.parametrize("name", [each for each in templates() if each != DECLARATIVE])
def test_every_template_is_valid(name):
    names = ("POSTGRES_URI", "DATABASE_USER", "DATABASE_PASSWORD")
    path = templates()[name] / "pipeline.yaml"
    assert load(path, environment=dict.fromkeys(names, "x")).spec.sinks
