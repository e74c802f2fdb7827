"""Fixtures and hooks for all tests."""

import asyncio
import gc
import logging
import os
import signal
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from inspect import isasyncgenfunction, iscoroutinefunction, signature
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from support.scratch import disk_warning, enter_scratch_directory
from support.servers.etcd import etcd_member
from support.servers.programs import extend_search_path, summary_of_skips
from support.servers.zookeeper import zookeeper_member
from support.worlds import selection
from support.worlds.current import memory_broker

# How long an example takes says how busy the machine is, not whether it is right.
settings.register_profile(
    "untimed",
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],
)
# `make check` tries fewer examples than `make test`, and `make soak` tries many more.
settings.register_profile("quick", settings.get_profile("untimed"), max_examples=10)
settings.register_profile("soak", settings.get_profile("untimed"), max_examples=1000)
settings.load_profile("untimed")

# A worker of pytest-xdist would hand its own search path down to every process that a
# test starts, also to those that are to do without our packages.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.pop("PYTHONPATH", None)

# A shell lets commands in the background ignore SIGINT, and programs that tests start
# would do the same.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

extend_search_path()
# Commands must not find the contexts of the user who runs the tests.
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"
# What a test forgets to remove goes with the run.
_RUN = enter_scratch_directory()

# A connection that was accepted just before its server is closed fails an assertion of
# asyncio, and is never closed (https://github.com/python/cpython/issues/109564).
_accept = BaseSelectorEventLoop._accept_connection2  # noqa: SLF001


async def _accept_if_open(loop, factory, connection, extra, sslcontext, server, *rest):
    if server is not None and not server.sockets:
        connection.close()
        return
    await _accept(loop, factory, connection, extra, sslcontext, server, *rest)


BaseSelectorEventLoop._accept_connection2 = _accept_if_open  # noqa: SLF001

ASYNC_TIMEOUT_S = 120
"""How long an asynchronous test may take, unless it is marked with a timeout."""


def pytest_addoption(parser):
    selection.add_options(parser)


def pytest_configure(config):
    selection.configure(config)
    # Shells ignore SIGINT in background processes, and so would programs of tests.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if _RUN.is_owned and config.option.basetemp is None:
        config.option.basetemp = str(_RUN.tests)


def pytest_generate_tests(metafunc):
    selection.parametrize(metafunc)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    selection.describe_failure(item, report)
    return report


@pytest.fixture(autouse=True)
def world(request):
    """Enter the world in which the test runs."""
    with selection.in_world(request) as name:
        yield name


@pytest.fixture
def broker_options():
    """Return the options of ``broker``; ``@using`` changes them."""
    return {}


@pytest.fixture
async def broker(broker_options):
    """Run a broker with its native server, in the world of the test."""
    async with memory_broker(**broker_options) as broker:
        yield broker


@pytest.fixture
async def client(broker):
    """Connect a client to ``broker``."""
    async with broker.connect() as client:
        yield client


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    """Run a cluster of etcd with one member."""
    with etcd_member(tmp_path_factory.mktemp("etcd")) as member:
        yield member


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory):
    """Run one member of ZooKeeper, which is alone."""
    with zookeeper_member(tmp_path_factory.mktemp("zookeeper")) as member:
        yield member


@pytest.fixture
def no_credentials(monkeypatch):
    """Hide credentials in the environment of the developer."""
    for name in ("DANUBE_TOKEN", "DANUBE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """
    Restore the format of captured logs after tests with Spark.

    After an error, Spark's loggers do not propagate. pytest therefore adds its handlers
    to them, and they set a format of their own, in JSON, for the rest of the session.
    """
    yield
    if item.get_closest_marker("spark") is not None:
        for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
            if (found := logging.root.manager.loggerDict.get(name)) is not None:
                found.propagate = True
        plugin = item.config.pluginmanager.get_plugin("logging-plugin")
        for handler in (plugin.caplog_handler, plugin.report_handler):
            handler.setFormatter(plugin.formatter)


def pytest_sessionstart(session):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and (line := disk_warning(_RUN.path)) is not None:
        reporter.write_line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Note what the tests of a file leave, when the last of them has ended."""
    result = yield
    if nextitem is None or _file_of(nextitem) != _file_of(item):
        _RUN.note_left(_file_of(item))
    return result


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = _RUN.left
    _RUN.has_failed = session.testsfailed > 0
    return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """Take over what a worker noted."""
    _RUN.left |= getattr(node, "workeroutput", {}).get("left", {})


def pytest_terminal_summary(terminalreporter):
    skips = terminalreporter.stats.get("skipped", [])
    if (line := summary_of_skips([str(each.longrepr) for each in skips])) is not None:
        terminalreporter.write_line(line)
    for file, names in sorted(_RUN.left.items()):
        terminalreporter.write_line(f"LEFT BEHIND by {file}: {', '.join(names)}")
    if _RUN.has_failed and _RUN.is_owned:
        terminalreporter.write_line(
            f"Files of the tests that failed are in {_RUN.tests} until the next run."
        )


def pytest_itemcollected(item):
    if item.get_closest_marker("spark"):
        # Spark leaves the sockets of its workers to the garbage collector.
        item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))


def pytest_collect_directory(path, parent):
    """
    Let each worker import the test files in an order of its own.

    A worker rewrites the assertions of a file when it imports it, and stores the
    result for the others.  Workers that came to the files in one order would do it at
    the same time, each for itself.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        return ShuffledDirectory.from_parent(parent, path=path)
    return None


class ShuffledDirectory(pytest.Dir):
    """A directory whose files are collected in an order that the worker has."""

    def collect(self):
        children = list(super().collect())
        Random(f"{os.environ['PYTEST_XDIST_WORKER']} {self.nodeid}").shuffle(children)
        return children


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Search no garbage while tests are collected, nor among them afterwards."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # Brokers of this process freeze what is there, and unfreeze it when they stop.
        # After that, each collection would take most of a second for the tests alone.
        gc.freeze = gc.unfreeze = _keep_frozen
        gc.enable()


def _keep_frozen():
    """Do nothing: what was collected stays frozen, and nothing else becomes so."""


def pytest_collection_modifyitems(config, items):
    items[:] = selection.without_differences(items)
    selection.rotate(config, items)
    items.sort(key=lambda item: _turn_of(_file_of(item)))


def _turn_of(file):
    """Return when a file has its turn: long files first, so that workers end together.

    Those that start Spark take longest, and the files of one package's tests are short.
    """
    return not _starts_spark(file), file.startswith("packages/"), file


def _file_of(item):
    return item.nodeid.partition("::")[0]


# Asynchronous tests. A test and its asynchronous fixtures run in one task of an event
# loop of their own, so a fixture may be a task group, and its failure ends the test.


@dataclass(eq=False)
class AsyncFixture:
    """An asynchronous fixture that the test has not entered yet."""

    function: Callable[..., Any]
    arguments: dict[str, Any]


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef, request):
    """Leave asynchronous fixtures to ``pytest_pyfunc_call``."""
    function = fixturedef.func
    if not (isasyncgenfunction(function) or iscoroutinefunction(function)):
        return None
    name = fixturedef.argname
    assert fixturedef.scope == "function", f"{name} lives longer than an event loop"
    test = _inner(request.function)
    assert iscoroutinefunction(test), f"{name} needs an `async def` test"
    arguments = {name: request.getfixturevalue(name) for name in fixturedef.argnames}
    fixture = AsyncFixture(function, arguments)
    fixturedef.cached_result = (fixture, fixturedef.cache_key(request), None)
    return fixture


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run asynchronous tests; each example of Hypothesis has fixtures of its own."""
    test = _inner(pyfuncitem.obj)
    if not iscoroutinefunction(test):
        return None
    marker = pyfuncitem.get_closest_marker("timeout")
    timeout_s = marker.args[0] if marker else ASYNC_TIMEOUT_S

    def run(**arguments):
        asyncio.run(_run(test, arguments, pyfuncitem.funcargs, timeout_s))

    if test is not pyfuncitem.obj:
        run.test = test
        pyfuncitem.obj.hypothesis.inner_test = run
        return None
    names = signature(test).parameters
    run(**{name: pyfuncitem.funcargs[name] for name in names})
    return True


def _inner(test):
    if hasattr(test, "hypothesis"):
        test = test.hypothesis.inner_test
    return getattr(test, "test", test)


async def _run(test, arguments, fixtures, timeout_s):
    __tracebackhide__ = True
    failure = None
    values = {}

    async def value_of(fixture):
        if not isinstance(fixture, AsyncFixture):
            return fixture
        if fixture not in values:
            given = {k: await value_of(v) for k, v in fixture.arguments.items()}
            if iscoroutinefunction(fixture.function):
                values[fixture] = await fixture.function(**given)
            else:
                context = asynccontextmanager(fixture.function)(**given)
                values[fixture] = await opened.enter_async_context(context)
        return values[fixture]

    async with asyncio.timeout(timeout_s), AsyncExitStack() as opened:
        for fixture in fixtures.values():
            await value_of(fixture)
        given = {name: await value_of(value) for name, value in arguments.items()}
        try:
            await test(**given)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001
            # Raise it outside of the fixtures' task groups, which would wrap it.
            failure = error
    if failure is not None:
        raise failure


TIDY = "tests/tidy/"
SPARK_WORKERS = 2
"""The number of workers that start Spark: with more, sessions wait for each other."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """
    Divide the tests between workers by file, so that fixtures are made once.

    Some begin with the files that start Spark, and the others with the rest.
    """
    from xdist.scheduler import LoadFileScheduling

    # Keep the order of the collection; a file with many tests is not a slow one.
    config.option.loadscopereorder = False
    spark_workers = set()

    class Scheduling(LoadFileScheduling):
        def _assign_work_unit(self, node):
            others = spark_workers & self.assigned_work.keys() - {node}
            may_start_spark = len(others) < SPARK_WORKERS
            files = (
                f for f in self.workqueue if may_start_spark or not _starts_spark(f)
            )
            if (file := next(files, None)) is None:
                node.shutdown()
                return
            if _starts_spark(file):
                spark_workers.add(node)
            self.workqueue.move_to_end(file, last=False)
            super()._assign_work_unit(node)

        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            # These parse all modules, which they share.
            return TIDY if file.startswith(TIDY) else file

    return Scheduling(config, log)


@cache
def _starts_spark(file):
    path = Path(__file__).parent / file
    return path.is_file() and "pytest.mark.spark" in path.read_text(encoding="utf-8")
