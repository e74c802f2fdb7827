"""Tests of the events of OpenLineage."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import jsonschema_rs
import pytest

pytest.importorskip("openlineage")

from pydanube_spark.pipelines.lineage import lineage_of
from pydanube_spark.pipelines.loading import load
from pydanube_spark.pipelines.pure.progress import RunState

FILE = """\
name: p
sources: {{a: {{topic: /default/a}}}}
sinks: {{o: {{input: a, topic: /default/o}}}}
{more}
"""


def pipeline(tmp_path, more):
    path = tmp_path / "p.yaml"
    path.write_text(FILE.format(more=more))
    return load(path, environment={"KEY": "hidden"})


URI = {"type": "string", "format": "uri"}
FACETS = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "properties": {"_producer": URI, "_schemaURL": URI},
        "required": ["_producer", "_schemaURL"],
    },
}
NAMED = {
    "type": "object",
    "properties": {
        "namespace": {"type": "string", "minLength": 1},
        "name": {"type": "string", "minLength": 1},
        "facets": FACETS,
    },
    "required": ["namespace", "name"],
}
EVENT = {
    "type": "object",
    "properties": {
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL"]},
        "eventTime": {"type": "string", "format": "date-time"},
        "run": {
            "type": "object",
            "properties": {
                "runId": {"type": "string", "format": "uuid"},
                "facets": FACETS,
            },
            "required": ["runId"],
        },
        "job": NAMED,
        "inputs": {"type": "array", "items": NAMED},
        "outputs": {"type": "array", "items": NAMED},
        "producer": URI,
        "schemaURL": URI,
    },
    "required": ["eventTime", "eventType", "run", "job", "producer", "schemaURL"],
}
"""The requirements of version 2 of OpenLineage's specification on a run's event."""

RULES = jsonschema_rs.Draft202012Validator(EVENT, validate_formats=True)


def events_in(path):
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for event in events:
        RULES.validate(event)
    return events


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (RunState.DONE, "COMPLETE"),
        (RunState.STOPPED, "ABORT"),
        (RunState.STARTING, "ABORT"),
        (RunState.FAILED, "FAIL"),
    ],
)
def test_a_run_starts_and_ends(tmp_path, state, kind):
    found = pipeline(tmp_path, "lineage: {file: events.ndjson, namespace: shop}")
    with lineage_of(found) as lineage:
        lineage.state, lineage.error = state, "it broke"
    start, end = events_in(tmp_path / "events.ndjson")
    assert (start["eventType"], end["eventType"]) == ("START", kind)
    assert start["run"]["runId"] == end["run"]["runId"]
    assert (end["job"]["namespace"], end["job"]["name"]) == ("shop", "p")
    assert end["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    [given], [made] = end["inputs"], end["outputs"]
    broker = "danube://127.0.0.1:6651"
    assert (given["namespace"], given["name"]) == (broker, "/default/a")
    assert (made["namespace"], made["name"]) == (broker, "/default/o")
    assert ("errorMessage" in end["run"]["facets"]) == (kind == "FAIL")


@pytest.mark.parametrize(
    ("trigger", "kinds"),
    [
        ("continuous", ["START", "RUNNING", "RUNNING", "ABORT"]),
        ("available-now", ["START", "ABORT"]),
    ],
)
def test_a_stream_says_every_ten_minutes_that_it_goes_on(tmp_path, trigger, kinds):
    found = pipeline(tmp_path, f"lineage: {{file: e.ndjson}}\ntrigger: {trigger}")
    with lineage_of(found) as lineage:
        for now in (5.0, 604.0, 605.0, 606.0, 1204.0, 9000.0):
            lineage.poll(now)
        lineage.state = RunState.STOPPED
    events = events_in(tmp_path / "e.ndjson")
    assert [each["eventType"] for each in events] == kinds
    assert len({each["run"]["runId"] for each in events}) == 1
    assert all(each["inputs"] and each["outputs"] for each in events)


def test_an_error_fails_the_run_without_secrets(tmp_path):
    found = pipeline(
        tmp_path,
        "lineage: {file: e.ndjson}\ndescription: ${env:KEY}\ntrigger: continuous",
    )
    with pytest.raises(ValueError, match="hidden"), lineage_of(found):
        raise ValueError("the password is hidden")
    _, end = events_in(tmp_path / "e.ndjson")
    assert end["eventType"] == "FAIL"
    facet = end["run"]["facets"]["errorMessage"]
    assert facet["message"] == "the password is ***"
    assert end["job"]["facets"]["jobType"]["processingType"] == "STREAMING"


def test_events_that_break_the_specification_are_found(tmp_path):
    found = pipeline(tmp_path, "lineage: {file: e.ndjson}")
    with lineage_of(found) as lineage:
        lineage.state, lineage.error = RunState.FAILED, "it broke"
    *_, event = events_in(tmp_path / "e.ndjson")
    for change in (
        {"eventTime": "yesterday"},
        {"producer": "pydanube"},
        {"run": {"runId": "7"}},
        {"job": {"name": "p"}},
        {"run": {**event["run"], "facets": {"errorMessage": {"message": "x"}}}},
    ):
        assert not RULES.is_valid(event | change)


def test_nothing_is_sent_by_default(tmp_path):
    with lineage_of(pipeline(tmp_path, "")) as lineage:
        assert lineage is None


@contextmanager
def serving(requests):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            requests.append((self.path, self.headers["Authorization"], body))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_events_go_to_a_server(tmp_path):
    requests = []
    with serving(requests) as url:
        more = f"lineage: {{url: '{url}', api_key: '${{env:KEY}}'}}"
        with lineage_of(pipeline(tmp_path, more)) as lineage:
            lineage.state = RunState.DONE
    kinds = [json.loads(body)["eventType"] for _, _, body in requests]
    assert kinds == ["START", "COMPLETE"]
    assert {each[:2] for each in requests} == {("/api/v1/lineage", "Bearer hidden")}


def test_a_server_that_does_not_answer_fails_nothing(tmp_path, caplog):
    more = "lineage: {url: 'http://127.0.0.1:1'}"
    with lineage_of(pipeline(tmp_path, more)) as lineage:
        lineage.state = RunState.DONE
    said = [each.getMessage() for each in caplog.records if "OpenLineage" in each.msg]
    assert len(said) == 2
    assert said[0].startswith("the event START of OpenLineage was not sent")
