"""
The events of OpenLineage: a run starts, goes on, completes, is aborted, or fails.

The official client makes and sends them.  A server that does not answer delays a run by
at most a few seconds, and never fails it.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydanube.model.extras import require
from pydanube.model.version import __version__
from pydanube_spark.pipelines.lineage_datasets import datasets_read, datasets_written
from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.options import resolve
from pydanube_spark.pipelines.pure.progress import RunState
from pydanube_spark.pipelines.pure.spec import Lineage

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent
    from openlineage.client.transport import Transport

log = logging.getLogger(__name__)

SEND_TIMEOUT_S = 3.0
SEND_RETRIES = 1
RUNNING_INTERVAL_S = 600.0
"""How often a run that does not end by itself says that it goes on."""
PRODUCER = f"pydanube/{__version__}"


class LineageRun:
    """The events of one run."""

    def __init__(self, pipeline: Pipeline, lineage: Lineage) -> None:
        """Prepare the events; the client must be installed."""
        require("pipelines", "the section lineage")
        self._pipeline = pipeline
        self._namespace = lineage.namespace
        self._transport = _transport(pipeline, lineage)
        self._run_id = str(uuid.uuid4())
        self._running_due: float | None = None
        """When to say that the run goes on; None: before its first report."""
        self.state = RunState.FAILED
        self.error: str | None = None

    def start(self) -> None:
        """Send the event that the run starts."""
        self._send("START")

    def poll(self, now: float) -> None:
        """Send the event that a stream goes on, every RUNNING_INTERVAL_S."""
        if self._pipeline.trigger.ends:
            return
        if self._running_due is not None and now >= self._running_due:
            self._send("RUNNING")
            self._running_due = None
        if self._running_due is None:
            self._running_due = now + RUNNING_INTERVAL_S

    def end(self) -> None:
        """Send the event that the run has ended, as *state* and *error* say."""
        kinds = {
            RunState.DONE: "COMPLETE",
            RunState.STOPPED: "ABORT",
            # It was stopped for the next run, which has other tables of mirrors.
            RunState.STARTING: "ABORT",
        }
        self._send(kinds.get(self.state, "FAIL"))
        self._transport.close()

    def _send(self, kind: str) -> None:
        try:
            self._transport.emit(self._event(kind))
        except Exception as error:  # noqa: BLE001  # Many kinds; the run goes on.
            text = self._pipeline.redact(str(error))
            log.warning("the event %s of OpenLineage was not sent: %s", kind, text)

    def _event(self, kind: str) -> RunEvent:
        from openlineage.client.event_v2 import (  # noqa: PLC0415  # It is optional.
            InputDataset,
            Job,
            OutputDataset,
            Run,
            RunEvent,
            RunState,
        )
        from openlineage.client.facet_v2 import (  # noqa: PLC0415
            error_message_run,
            job_type_job,
        )

        pipeline = self._pipeline
        where = pipeline.spec, pipeline.broker, pipeline.directory
        facets: dict[str, Any] = {}
        if kind == "FAIL" and self.error is not None:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                message=self.error, programmingLanguage="PYTHON"
            )
        processing = "BATCH" if pipeline.trigger.ends else "STREAMING"
        job_type = job_type_job.JobTypeJobFacet(
            processingType=processing, integration="DANUBE", jobType="PIPELINE"
        )
        now = datetime.fromtimestamp(time.time_ns() / 1e9, UTC)
        return RunEvent(
            eventTime=now.isoformat(),
            producer=f"https://pypi.org/project/{PRODUCER}",
            run=Run(runId=self._run_id, facets=facets),
            job=Job(self._namespace, pipeline.name, facets={"jobType": job_type}),
            eventType=RunState[kind],
            inputs=[InputDataset(d.namespace, d.name) for d in datasets_read(*where)],
            outputs=[
                OutputDataset(d.namespace, d.name) for d in datasets_written(*where)
            ],
        )


@contextmanager
def lineage_of(pipeline: Pipeline) -> Iterator[LineageRun | None]:
    """
    Send the events of a run, which the body is; None if the file does not ask for them.

    The body sets the state and the error of what is yielded.

    Raises:
        MissingExtra: The client of OpenLineage is not installed.
    """
    if pipeline.spec.lineage is None:
        yield None
        return
    run = LineageRun(pipeline, pipeline.spec.lineage)
    run.start()
    try:
        yield run
    except BaseException as error:
        run.error = run.error or pipeline.redact(str(error) or type(error).__name__)
        raise
    finally:
        run.end()


def _transport(pipeline: Pipeline, lineage: Lineage) -> Transport:
    if lineage.file is not None:
        from openlineage.client.transport.file import (  # noqa: PLC0415
            FileConfig,
            FileTransport,
        )

        path = resolve(pipeline.directory, lineage.file)
        return FileTransport(FileConfig(log_file_path=path, append=True))
    from openlineage.client.transport.http import (  # noqa: PLC0415
        ApiKeyTokenProvider,
        HttpConfig,
        HttpTransport,
        TokenProvider,
    )

    assert lineage.url is not None
    own = {} if lineage.api_key is None else {"api_key": lineage.api_key}
    return HttpTransport(
        HttpConfig(
            url=lineage.url,
            timeout=SEND_TIMEOUT_S,
            auth=ApiKeyTokenProvider(own) if own else TokenProvider(own),
            retry={"total": SEND_RETRIES},
        )
    )
