"""
An export of a topic that kills itself at a given point.

    export_driver.py KIND DIRECTORY URL TOPIC POINT
"""

import os
import signal
import sys
from pathlib import Path

from pydanube.tables.export.exporter import Exporter, ExportOptions, thread_runner
from pydanube.tables.export.tasks import export
from support.lake_tables import table_in

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


def work(job):
    reach("before the write")
    return export(job)


def main():
    numbers = iter(range(1000))
    exporter = Exporter(
        ExportOptions(
            url=url, topic=topic, round_bytes_max=1, task_bytes_max=10_000, cores=2
        ),
        Dying(table_in(Path(directory), kind)),
        thread_runner(2),
        work,
        unique=lambda: f"{os.getpid()}-{next(numbers)}",
    )
    while not exporter.export_round().is_last:
        pass


if __name__ == "__main__":
    main()
