"""A run of the tests leaves nothing behind, unless tests failed."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import scratch
from support.project import ROOT
from support.scratch import (
    LOCK,
    MEMORY,
    NEW_S,
    PREFIX,
    VARIABLE,
    ScratchDirectory,
    disk_warning,
    memory_directory,
    remove_dead,
)

RUN = """
import os, sys, tempfile
from support.scratch import enter_scratch_directory, memory_directory

run = enter_scratch_directory()
run.tests.mkdir()
(run.tests / "kept").touch()
print(run.path, memory_directory(), tempfile.mkdtemp())
if os.fork() == 0:
    sys.exit()  # It runs what was registered for the exit of the process.
os.wait()
assert run.path.is_dir()
run.has_failed = sys.argv[1] == "failed"
if sys.argv[1] == "killed":
    os.abort()
"""


def run(place, how):
    """Run a program that ends in a way, and return the directories that it made."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in (VARIABLE, "PYTEST_XDIST_WORKER")
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN, how],
        env=environment | {"TMPDIR": str(place), "PYTHONPATH": str(ROOT / "tests")},
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    )
    assert (done.returncode == 0) == (how != "killed")
    return done.stdout.split()


def test_a_run_that_passes_leaves_nothing(tmp_path):
    [path, memory, temporary] = run(tmp_path, "passed")
    assert temporary.startswith(path)
    assert list(tmp_path.iterdir()) == []
    assert not Path(memory).exists()


def test_a_run_that_fails_leaves_the_files_of_its_tests(tmp_path):
    [path, memory, _] = run(tmp_path, "failed")
    [kept] = tmp_path.iterdir()
    assert str(kept) == path
    assert {each.name for each in kept.iterdir()} == {"t", "lock"}
    assert (kept / "t" / "kept").exists()
    assert not Path(memory).exists()


@pytest.mark.skipif(not os.access(MEMORY, os.W_OK), reason=f"needs {MEMORY}")
def test_all_files_of_a_run_may_be_in_memory():
    [path, memory, _] = run(MEMORY, "failed")
    try:
        assert (Path(path) / "t" / "kept").exists()
        assert not Path(memory).exists()
    finally:
        shutil.rmtree(path)


def test_a_run_that_was_killed_is_removed_by_a_later_one(tmp_path):
    [_, memory, _] = run(tmp_path, "killed")
    [left] = tmp_path.iterdir()
    assert Path(memory).is_dir()
    assert (left / "t" / "kept").exists()
    made = left.stat().st_ctime
    remove_dead(tmp_path, now=made + NEW_S - 1)
    assert left.exists(), "another run might be making it"
    remove_dead(tmp_path, now=made + NEW_S + 1)
    assert list(tmp_path.iterdir()) == []
    assert not Path(memory).exists()


def test_a_run_that_goes_on_is_not_removed(tmp_path):
    going = tmp_path / f"{PREFIX}1"
    going.mkdir()
    other = tmp_path / f"{PREFIX}of-somebody"
    (other / "t").mkdir(parents=True)
    link = tmp_path / f"{PREFIX}2"
    link.symlink_to(other)
    now = going.stat().st_ctime + 10 * NEW_S
    with (going / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove_dead(tmp_path, now=now)
        assert set(tmp_path.iterdir()) == {going, other, link}
    remove_dead(tmp_path, now=now)
    assert set(tmp_path.iterdir()) == {other, link}


def test_a_run_is_locked_before_it_removes_others(tmp_path, monkeypatch):
    def remove(place, *, now):
        remove_dead(place, now=now + 10 * NEW_S)

    monkeypatch.setattr(scratch, "remove_dead", remove)
    assert scratch.make_locked(tmp_path).is_dir()


def test_what_a_file_leaves_is_noted_once(tmp_path):
    directory = ScratchDirectory(tmp_path, tmp_path)
    directory.note_left("test_a.py")
    (tmp_path / "tmp1").mkdir()
    (tmp_path / "hsperfdata_me").mkdir()
    directory.note_left("test_b.py")
    directory.note_left("test_c.py")
    assert directory.left == {"test_b.py": ["tmp1"]}


def test_this_run_has_a_directory_of_its_own():
    path = os.environ[VARIABLE]
    assert os.environ["TMPDIR"].startswith(path)
    assert memory_directory().is_dir()


@pytest.mark.parametrize(("needed", "warns"), [(1, False), (1 << 60, True)])
def test_a_disk_with_too_little_room_is_named(tmp_path, needed, warns):
    line = disk_warning(tmp_path, needed=needed)
    assert (line is not None) == warns
    if line is not None:
        assert str(tmp_path) in line
        assert f"needs {2**30} GiB" in line
