"""Pipeline directories whose runs use the Spark session of the tests."""

from __future__ import annotations

import io
import json
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any

from pydanube_spark.pipelines.display import LineDisplay
from pydanube_spark.pipelines.loading import Pipeline, load
from pydanube_spark.pipelines.templates import write_template

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

POLLS_MAX = 2400
"""The number of polls after which a test fails."""


class PipelineDirectory:
    """The directory of a pipeline file, with the state of its runs."""

    def __init__(self, path: Path, url: str, **parameters: Any) -> None:
        self.path = path
        self.file = path / "pipeline.yaml"
        self.parameters = parameters
        self.environment = {"DANUBE_URL": url}
        self.output = io.StringIO()

    @classmethod
    def of_template(
        cls, name: str, path: Path, url: str, **parameters: Any
    ) -> PipelineDirectory:
        write_template(name, path)
        return cls(path, url, **parameters)

    def load(self) -> Pipeline:
        given = {name: str(value) for name, value in self.parameters.items()}
        return load(self.file, parameters=given, environment=self.environment)

    @property
    def state(self) -> Any:
        return self.load().state

    def run(
        self, spark: Any, *, on_poll: Callable[[], None] | None = None, **more: Any
    ) -> Any:
        """
        Run the pipeline to its end and return its last state.

        *on_poll* is called after each poll of the queries.
        """
        from pydanube_spark.pipelines.running import PipelineRun

        polls = 0

        def wait(seconds: float) -> None:
            nonlocal polls
            polls += 1
            assert polls < POLLS_MAX, self.output.getvalue()
            if on_poll is not None:
                on_poll()
            time.sleep(seconds)

        pipeline = self.load()
        with pipeline.state.locked("a test"):
            # As a new run of the command does.
            pipeline.state.clear_stop_request()
            last_state = PipelineRun(
                spark, pipeline, LineDisplay(self.output), wait=wait, **more
            ).execute()
        # Where a test fails, this is shown.
        sys.stdout.write(self.output.getvalue())
        return last_state

    def forget_commit(self, query: str) -> None:
        """Remove the last commit, as if the run had been killed before writing it."""
        forget_commit(self.state.checkpoints / query)


def forget_commit(checkpoint: Path) -> Path:
    """Remove the last commit in *checkpoint*, and return its path."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / f".{last}.crc").unlink(missing_ok=True)
    (commits / str(last)).unlink()
    return commits / str(last)


def unique_topic(client: Any, **settings: Any) -> str:
    """A new topic that stores its messages."""
    name = f"/default/p-{uuid.uuid4().hex[:12]}"
    client.topics.create(name, reliable=True, **settings)
    return name


def send(client: Any, topic: str, *values: Any) -> None:
    """Publish *values* as JSON; a payload of bytes as it is."""
    with client.producer(topic, reliable=True) as producer:
        producer.send_batch(
            [each if isinstance(each, bytes) else json.dumps(each) for each in values]
        )


def read_json(client: Any, topic: str) -> list[Any]:
    """The values of all messages of *topic*, in order."""
    return [json.loads(payload) for payload, _, _ in read(client, topic)]


def read(client: Any, topic: str) -> list[tuple[bytes, bytes | None, dict[str, str]]]:
    """Payload, key and attributes of all messages of *topic*, in order."""
    return [
        (message.payload, message.key, dict(message.attributes or {}))
        for batch in client.read(topic)
        for message in batch
    ]
