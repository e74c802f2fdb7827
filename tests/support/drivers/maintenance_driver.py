"""
Maintenance in a process that kills itself at one of its steps.

``python maintenance_driver.py URL TOPIC STEP``: a step is the start or end of a job or
of a replacement.
"""

from __future__ import annotations

import os
import signal
import sys

from pydanube import sync
from pydanube_spark.jobs import ThreadRunner
from pydanube_spark.tables.maintenance.run import MaintenanceOptions, maintain

WORK = MaintenanceOptions(is_compacting=True, grace_s=0)


class Steps:
    """Counts steps, and does something at one of them."""

    def __init__(self, at, do) -> None:
        self.at = at
        self.do = do
        self.count = 0

    def step(self) -> None:
        self.count += 1
        if self.count == self.at:
            self.do()


class SteppingRunner(ThreadRunner):
    """One thread, whose jobs are steps."""

    def __init__(self, steps) -> None:
        super().__init__(1)
        self._steps = steps

    def outcomes(self, jobs, work):
        def step_after(job):
            answer = work(job)
            self._steps.step()
            return answer

        return super().outcomes(jobs, step_after)


class SteppingClient:
    """A client whose replacements are steps."""

    def __init__(self, client, steps) -> None:
        self._client = client
        self._steps = steps

    def __getattr__(self, name):
        return getattr(self._client, name)

    @property
    def storage(self):
        return self

    def segments(self, topic):
        return self._client.storage.segments(topic)

    def replace_segments(self, *arguments):
        self._steps.step()
        removed = self._client.storage.replace_segments(*arguments)
        self._steps.step()
        return removed


def keep(client, topic, steps):
    """Maintain *topic*, step by step."""
    return maintain(
        SteppingClient(client, steps),
        topic,
        WORK,
        SteppingRunner(steps),
        tell=lambda _: None,
    )


def main() -> None:
    url, topic, at = sys.argv[1:]
    steps = Steps(int(at), lambda: os.kill(os.getpid(), signal.SIGKILL))
    with sync.connect(url) as client:
        report = keep(client, topic, steps)
    assert report.error is None, report.error
    assert not report.problems, report.problems


if __name__ == "__main__":
    main()
