"""The thread that watches a run and sends its alerts to a web server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import msgspec

from pydanube.model.errors import BrokerError
from pydanube.model.retry import RetryPolicy
from pydanube.pipelines.alerts import Alerts, Notice
from pydanube.pipelines.loading import Pipeline
from pydanube.pipelines.spec import AlertSection
from pydanube.pipelines.supervising import utc_now
from pydanube.sinks.requests import Requests, summarize

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
TIMEOUT_S = 10.0
END_S = 15.0
"""How long the end of a run may wait until its last notices are sent."""
RETRIES = RetryPolicy(1.0, 10.0, retries_max=3)


@contextmanager
def sending_alerts(
    pipeline: Pipeline,
    *,
    interval_s: float = INTERVAL_S,
    retries: RetryPolicy = RETRIES,
) -> Iterator[None]:
    """
    Send the alerts of the run that the body is, and at its end.

    A server that does not answer never fails a run, and delays its end only a little.
    """
    section = pipeline.spec.alerts
    if section is None:
        yield
        return
    ended = threading.Event()
    watch = _Watch(pipeline, section)
    thread = threading.Thread(
        target=watch.run,
        args=(ended, interval_s, retries),
        name="alerts",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(END_S)


class _Watch:
    """The watch over one run."""

    def __init__(self, pipeline: Pipeline, section: AlertSection) -> None:
        self._pipeline = pipeline
        self._section = section
        self._alerts = Alerts(section.rules)

    def run(
        self, ended: threading.Event, interval_s: float, retries: RetryPolicy
    ) -> None:
        """Watch until *ended* is set, and once more."""
        with closing(Requests(timeout_s=TIMEOUT_S, retries=retries)) as requests:
            while not ended.wait(interval_s):
                self._look(requests)
            self._look(requests)

    def _look(self, requests: Requests) -> None:
        state = self._pipeline.state
        record = state.read_record()
        if record is None:
            return
        for notice in self._alerts.update(record, state.read_status(), utc_now()):
            self._send(requests, notice)

    def _send(self, requests: Requests, notice: Notice) -> None:
        section = self._section
        headers = {"Content-Type": "application/json", **section.headers}
        content = msgspec.json.encode(notice)
        try:
            answer = requests.send(
                "POST", section.url, headers=headers, content=content
            )
            problem = "" if answer.is_success else summarize(answer)
        except BrokerError as error:
            problem = str(error)
        if problem:
            text = self._pipeline.redact(problem)
            log.warning("the alert %s was not sent: %s", notice.alert, text)
