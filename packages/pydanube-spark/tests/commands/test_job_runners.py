from pathlib import Path

import pytest

from pydanube_spark.commands.job_runners import spark_log


def test_log_of_spark_is_removed_at_the_end() -> None:
    with spark_log() as path:
        path.write_text("It ran.", encoding="utf-8")
    assert not path.exists()


def test_log_of_spark_stays_after_an_error() -> None:
    def fail(path: Path) -> None:
        path.write_text("It failed.", encoding="utf-8")
        written.append(path)
        raise ZeroDivisionError

    written: list[Path] = []
    with pytest.raises(ZeroDivisionError), spark_log() as path:
        fail(path)
    [path] = written
    assert path.read_text(encoding="utf-8") == "It failed."
    path.unlink()
