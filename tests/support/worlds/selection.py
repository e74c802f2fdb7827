"""
Which tests run in which worlds: the options of pytest, and how a failure is repeated.

A test takes part if it opens a broker with a function of ``current``, in its own code,
in that of its fixtures, or in that of the functions of ``tests`` which they call.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from inspect import unwrap
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any
from zlib import crc32

import pytest

from support.project import ROOT
from support.worlds.current import (
    MEMORY,
    OTHER_WORLDS,
    WORLDS,
    CurrentWorld,
    entered,
    memory_broker,
    sync_memory_broker,
)
from support.worlds.differences import find_difference

ROTATING = "rotating"
ALL = "all"
PARTS = 4
"""``rotating`` runs one of so many parts of the tests in each other world."""

AT_LENGTH = frozenset({"processes"})
"""Worlds with real files and locks, whose steps take any time: not in ``rotating``."""

CLIENTS = "packages/pydanube/tests/client/"
OF_CLIENTS = frozenset({"without-arrow"})
"""Worlds of programs that have the client alone, and no command line."""

ROTATED = (
    CLIENTS,
    "packages/pydanube-connect/tests/test_worker.py",
    "e2e/test_cli.py",
    "e2e/test_cli_",
    "e2e/test_admin_cli.py",
    "e2e/test_topic_configuration.py",
    "scenarios/test_admin_transcripts.py",
    "scenarios/test_client_transcripts.py",
    "docs/test_examples.py",
)
"""
The tests of which ``rotating`` runs a part; their seed is the number of the part.

The others run in other worlds if ``--world`` names these.
"""

_OPENERS = {unwrap(memory_broker), unwrap(sync_memory_broker)}
_NODE = pytest.StashKey[CurrentWorld]()


def add_options(parser: pytest.Parser) -> None:
    """Add the options ``--world`` and ``--world-seed``."""
    group = parser.getgroup("worlds")
    group.addoption(
        "--world",
        default=MEMORY,
        metavar="WORLDS",
        help=f"where tests of clients run: {', '.join(WORLDS)}, separated by commas; "
        f"{ALL}; or {ROTATING}: all in {MEMORY}, and a quarter in each other world "
        f"but {', '.join(AT_LENGTH)}; after each commit it is another quarter",
    )
    group.addoption(
        "--world-seed",
        default=None,
        type=int,
        metavar="N",
        help="the seed of what happens in the worlds; by default the number of commits",
    )


def configure(config: pytest.Config) -> None:
    """Choose the seed, which the workers of pytest-xdist then have, too."""
    if config.option.world_seed is None:
        commits = _commits()
        is_rotating = config.option.world == ROTATING
        config.option.world_seed = commits % PARTS if is_rotating else commits
    _chosen(config)


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Let a test that takes part run in the worlds that are chosen."""
    if not takes_part(metafunc):
        return
    nodeid = metafunc.definition.nodeid
    worlds = [
        each
        for each in _worlds_of(metafunc.config, nodeid)
        if find_difference(each, nodeid) is None
    ]
    if worlds == [MEMORY]:
        return
    metafunc.parametrize("world", worlds, indirect=True)


def without_differences(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return *items* without the examples of tests that cannot hold in their world."""
    return [each for each in items if not _differs(each)]


def _differs(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    world = MEMORY if callspec is None else callspec.params.get("world", MEMORY)
    return find_difference(world, item.nodeid) is not None


def rotate(config: pytest.Config, items: list[pytest.Item]) -> None:
    """
    Leave out the tests marked as rotated whose turn it is not.

    One of ``PARTS`` parts of each group runs, and at least one test.  A group is a
    file, or all tests whose marks have the same argument.  Tests that the command line
    names always run.
    """
    if config.option.world != ROTATING or all("::" in each for each in config.args):
        return
    rotated: dict[str, list[pytest.Item]] = {}
    for each in items:
        # Whether the long tests run is decided elsewhere.
        if each.get_closest_marker("rotated") and not each.get_closest_marker("soak"):
            rotated.setdefault(_group_of(each), []).append(each)
    gone = {
        each
        for tests in rotated.values()
        # Each worker has collected the files in an order of its own.
        for number, each in enumerate(sorted(tests, key=lambda test: test.nodeid))
        if (number - config.option.world_seed) % min(PARTS, len(tests))
    }
    left_out = [each for each in items if each in gone]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [each for each in items if each not in gone]


def _group_of(item: pytest.Item) -> str:
    mark = item.get_closest_marker("rotated")
    assert mark is not None
    name: str = mark.args[0] if mark.args else item.nodeid.partition("::")[0]
    return name


def takes_part(metafunc: pytest.Metafunc) -> bool:
    """Return whether a test opens brokers of worlds."""
    fixtures = metafunc._arg2fixturedefs.values()
    functions = [metafunc.function, *(each[-1].func for each in fixtures)]
    return any(map(_opens, functions))


@contextmanager
def in_world(request: pytest.FixtureRequest) -> Iterator[str]:
    """Enter the world that is the parameter of a test, if it has one."""
    name, node = getattr(request, "param", MEMORY), request.node
    nodeid = node.nodeid.replace(f"[{name}]", "").replace(f"[{name}-", "[")
    seed = f"{node.config.option.world_seed} {name} {_without_folder(nodeid)}"
    with entered(name, seed) as world:
        node.stash[_NODE] = world
        yield name


def describe_failure(item: pytest.Item, report: Any) -> None:
    """Add what happened in the world of a failed test, and how to repeat it."""
    world = item.stash.get(_NODE, None)
    if world is None or not report.failed or world.name == MEMORY:
        return
    events = [event for chance in world.chances for event in chance.log]
    seed = item.config.option.world_seed
    repeat = f"pytest --world {world.name} --world-seed {seed} '{item.nodeid}'"
    report.sections.append(("world", "\n".join([*events, f"Repeat it: {repeat}"])))


def _chosen(config: pytest.Config) -> list[str]:
    words = config.option.world.split(",")
    if config.option.world == ROTATING:
        return [each for each in WORLDS if each not in AT_LENGTH]
    if config.option.world == ALL:
        return list(WORLDS)
    for word in words:
        if word not in WORLDS:
            raise pytest.UsageError(
                f"--world: {word!r} is none of {', '.join(WORLDS)}, {ALL}, {ROTATING}"
            )
    return words


def _worlds_of(config: pytest.Config, nodeid: str) -> list[str]:
    chosen = [
        each
        for each in _chosen(config)
        if each not in OF_CLIENTS or nodeid.startswith(CLIENTS)
    ]
    if config.option.world != ROTATING:
        return chosen
    if not nodeid.removeprefix("tests/").startswith(ROTATED):
        return [MEMORY]
    return [
        each
        for each in chosen
        if each not in OTHER_WORLDS
        or _has_turn(config, f"{each} {_without_folder(nodeid)}")
    ]


def _without_folder(nodeid: str) -> str:
    """Return *nodeid* without its folder: a file that moves changes no chances."""
    path, separator, test = nodeid.partition("::")
    return path.rpartition("/")[2] + separator + test


def _has_turn(config: pytest.Config, name: str) -> bool:
    return crc32(name.encode()) % PARTS == config.option.world_seed % PARTS


@cache
def _opens(function: Any) -> bool:
    """Return whether *function*, or one that it calls, opens a broker of a world."""
    pending, known = [function], set()
    while pending:
        each = pending.pop()
        if hasattr(each, "hypothesis"):
            each = each.hypothesis.inner_test
        each = unwrap(each)
        if each in _OPENERS:
            return True
        if not isinstance(each, FunctionType) or each in known:
            continue
        known.add(each)
        pending += _called(each)
    return False


@cache
def _called(function: FunctionType) -> list[Any]:
    """Return the functions of tests whose names *function* uses."""
    found = map(function.__globals__.get, _names(function.__code__))
    return [each for each in found if callable(each) and _is_ours(each)]


def _is_ours(found: Any) -> bool:
    code = getattr(unwrap(found), "__code__", None)
    return code is not None and _is_of_tests(code.co_filename)


@cache
def _is_of_tests(file: str) -> bool:
    place = Path(file)
    return place.is_relative_to(ROOT) and "tests" in place.relative_to(ROOT).parts


def _names(code: CodeType) -> Iterable[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _commits() -> int:
    """Return the number of commits; 0 outside of a repository."""
    done = subprocess.run(
        ["git", "rev-list", "--count", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return int(done.stdout) if done.returncode == 0 else 0
