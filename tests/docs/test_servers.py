"""The servers that tests start: how they are installed, and what is skipped without."""

import shutil
import subprocess

import pytest

from support.project import ROOT
from support.servers.programs import NOT_INSTALLED, required_program, summary_of_skips

COREUTILS = ("bash", "dirname", "env")


def test_a_missing_program_skips_the_test(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install none"):
        required_program("no-such-program", "none")


def test_a_missing_program_fails_the_test_in_continuous_integration(monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-program"):
        required_program("no-such-program", "none")


def test_the_summary_names_each_missing_program_once():
    reasons = [f"Skipped: {NOT_INSTALLED}{name}" for name in ("b", "a", "b")]
    assert summary_of_skips([*reasons, "no cause"]) == (
        "3 tests were skipped. Not installed: a, b"
    )
    assert summary_of_skips(["no cause"]) is None


def run_servers(directory, *command, path):
    """Run the script in a checkout of its own."""
    (directory / "tools").mkdir()
    (directory / ".venv").mkdir()
    shutil.copy(ROOT / "tools" / "servers", directory / "tools")
    return subprocess.run(
        [*command, directory / "tools" / "servers"],
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_system_without_apt_is_told_what_to_install(tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    for each in COREUTILS:
        (programs / each).symlink_to(shutil.which(each))
    # /usr/sbin has servers where they are installed, so one may be missing or all.
    done = run_servers(tmp_path, path=programs)
    assert done.returncode == 0, done.stderr
    assert "this system has no apt-get" in done.stdout
    assert "chromium" in done.stdout


def test_nothing_happens_where_all_servers_are_installed(tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    names = (
        *("chromium", "etcd", "mosquitto", "mosquitto_pub", "promtool"),
        "redis-server",
    )
    for each in COREUTILS:
        (programs / each).symlink_to(shutil.which(each))
    for each in names:
        (programs / each).symlink_to("/bin/true")
    done = run_servers(tmp_path, path=programs)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
