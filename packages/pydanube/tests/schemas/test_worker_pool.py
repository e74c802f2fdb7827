"""Work in separate processes ends when it exceeds its time or memory."""

from __future__ import annotations

import json

import pytest

from pydanube.schemas.json_schema import JsonSchema
from pydanube.schemas.worker_pool import LimitExceeded, WorkerPool

TWO_PATHS = {"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2, "format": "regex"}
SCHEMA = JsonSchema(json.dumps(TWO_PATHS))


def alternatives(least):
    """Return a schema with many alternatives, which take long to compare."""
    return JsonSchema(
        json.dumps(
            {
                "anyOf": [
                    {
                        "properties": {f"p{number}": {"minimum": number + least}},
                        "required": [f"p{number}"],
                    }
                    for number in range(300)
                ]
            }
        )
    )


@pytest.mark.slow
def test_work_is_answered_or_exceeds_its_time_limit():
    processes = WorkerPool(seconds_max=0.5)
    compare = ["compare", alternatives(1).definition, alternatives(0).definition]
    with pytest.raises(LimitExceeded, match=r"more than 0\.5 s"):
        processes.call(compare)
    # Long enough for the start on a busy machine.
    processes = WorkerPool(seconds_max=60)
    request = ["validate", SCHEMA.definition, [b'{"a": 1}', b"1", b"{"]]
    answers = [processes.call(request) for _ in range(2)]
    assert answers[0] == answers[1]
    assert [index for index, _ in answers[0]] == [2]


@pytest.mark.slow
def test_work_exceeds_its_memory_limit():
    processes = WorkerPool(memory_kib_max=300 * 1024)
    payload = b"[" + b"{},".join([b""] * 4_000_000) + b"{}]"
    with pytest.raises(LimitExceeded, match="more than 300 MiB"):
        processes.call(["validate", SCHEMA.definition, [payload]])
    # The next request starts another process.
    assert processes.call(["validate", SCHEMA.definition, [b"{"]])
