"""Tests of bounded log files."""

from pydanube_spark.pipelines.log_files import follow, last_lines, rotate


def test_a_large_file_is_copied_and_truncated(tmp_path):
    path = tmp_path / "run.log"
    assert not rotate(path, bytes_max=4)
    with path.open("ab", buffering=0) as held:
        for text in (b"first\n", b"second\n", b"third\n", b"fourth\n"):
            held.write(text)
            assert rotate(path, bytes_max=4, kept=2)
            assert path.stat().st_size == 0
        held.write(b"x")
        assert not rotate(path, bytes_max=4)
    found = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert found == {
        "run.log": b"x",
        "run.log.1": b"fourth\n",
        "run.log.2": b"third\n",
    }


def test_last_lines_are_whole_lines(tmp_path):
    path = tmp_path / "run.log"
    assert last_lines(path, 3) == ([], 0)
    path.write_text("one\ntwo\nthree\nfo")
    assert last_lines(path, 2) == (["two", "three"], 14)
    assert last_lines(path, 0) == ([], 14)
    assert last_lines(path, 9) == (["one", "two", "three"], 14)


def test_last_lines_of_a_file_of_many_blocks(tmp_path):
    path = tmp_path / "run.log"
    lines = [f"{number} {'x' * 100}" for number in range(3000)]
    path.write_text("\n".join(lines) + "\n")
    found, position = last_lines(path, 1000)
    assert found == lines[-1000:]
    assert position == path.stat().st_size


def test_following_shows_what_is_added_until_the_run_is_over(tmp_path):
    path = tmp_path / "run.log"
    path.write_text("old\nfo")
    written = iter(["ur\nfive\n", None, "", "\nsix"])

    def wait():
        text = next(written)
        if text is None:
            path.write_text("new\n")
        else:
            with path.open("a") as file:
                file.write(text)

    over = iter([False, False, False, False, True])
    lines = follow(path, 4, is_over=lambda: next(over), wait=wait)
    assert list(lines) == ["four", "five", "new", "", "six"]


def test_following_a_missing_file_ends_with_the_run(tmp_path):
    lines = follow(tmp_path / "x", 0, is_over=lambda: True, wait=lambda: None)
    assert list(lines) == []
