"""What holds for all tests."""

import os
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is, not whether it is right.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# A worker of pytest-xdist would hand its own search path down to every process that a
# test starts, also to those that are to do without our packages.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.pop("PYTHONPATH", None)


def pytest_itemcollected(item):
    if item.get_closest_marker("spark"):
        # Spark leaves the sockets of its workers to the garbage collector.
        item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """
    Divide the tests between workers by file, so that fixtures are made once.

    All files that start Spark go to one worker, so there is one Spark at a time.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return "spark" if _starts_spark(file) else file

    return Scheduling(config, log)


@cache
def _starts_spark(file):
    path = Path(__file__).parents[1] / file
    return "pytest.mark.spark" in path.read_text(encoding="utf-8")
