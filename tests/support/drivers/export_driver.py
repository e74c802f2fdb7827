"""
An export of a topic that kills itself at a given point.

    export_driver.py KIND DIRECTORY URL TOPIC POINT
"""

import os
import signal
import sys
from pathlib import Path

from pydanube_spark.jobs import ThreadRunner
from pydanube_spark.tables.export.exporter import Exporter, ExportOptions
from support.drivers.lake_tables import table_in

kind, directory, url, topic, point = sys.argv[1:]


def reach(reached):
    if reached == point:
        os.kill(os.getpid(), signal.SIGKILL)


class Dying:
    """A table whose commit dies."""

    def __init__(self, table):
        self.table = table

    def __getattr__(self, name):
        return getattr(self.table, name)

    def commit(self, *given, **named):
        reach("after the write")
        done = self.table.commit(*given, **named)
        reach("after the commit")
        return done


class DyingRunner(ThreadRunner):
    """Threads that die before the first job."""

    def outcomes(self, jobs, work):
        reach("before the write")
        return super().outcomes(jobs, work)


def main():
    exporter = Exporter(
        ExportOptions(url=url, topic=topic, round_bytes_max=1, task_bytes_max=10_000),
        Dying(table_in(Path(directory), kind)),
        DyingRunner(2),
    )
    while not exporter.export_round().is_last:
        pass


if __name__ == "__main__":
    main()
