"""
The files and the command with which ``spark-submit`` runs a pipeline.

Settings may contain secrets, so they are in a file that only the user can read, and not
in the arguments of the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydanube.model.errors import InvalidRequest
from pydanube.pipelines.state import replace_file

APPLICATION = '''\
"""Runs the pipeline {name}; 'danube pipeline submit' has written this file."""

from pydanube.cli.pipeline_program import run_file

run_file({request!r})
'''


@dataclass(frozen=True, slots=True)
class Submission:
    """A pipeline as ``spark-submit`` takes it."""

    name: str
    directory: Path
    """The state directory of the pipeline, in which the files are."""
    master: str
    spark_home: Path
    python: str
    """The Python of the driver."""
    settings: Mapping[str, str]

    @property
    def command(self) -> list[str]:
        """Return the command, for the files of ``write``."""
        return [
            str(self.spark_home / "bin" / "spark-submit"),
            *("--master", self.master),
            *("--name", f"danube pipeline {self.name}"),
            *("--properties-file", str(self._properties_file)),
            str(self._application),
        ]

    @property
    def application(self) -> str:
        """Return the program that runs in the driver."""
        return APPLICATION.format(name=self.name, request=str(self._request_file))

    @property
    def properties(self) -> str:
        """Return the settings as a file of Java properties."""
        settings = {"spark.pyspark.driver.python": self.python, **self.settings}
        return "".join(
            f"{_escaped(name, is_key=True)}={_escaped(value)}\n"
            for name, value in settings.items()
        )

    def write(self, request: bytes) -> None:
        """Write the files, and *request*, which the program reads."""
        self.directory.mkdir(parents=True, exist_ok=True)
        files = {
            self._application: self.application.encode(),
            self._properties_file: self.properties.encode(),
            self._request_file: request,
        }
        for path, content in files.items():
            replace_file(path, content, is_secret=True)

    @property
    def _application(self) -> Path:
        return self.directory / "application.py"

    @property
    def _properties_file(self) -> Path:
        return self.directory / "spark.properties"

    @property
    def _request_file(self) -> Path:
        return self.directory / "request.json"


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """
    Return settings of Spark from texts of the form ``NAME=VALUE``.

    Raises:
        InvalidRequest: A text has another form.
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise InvalidRequest(f"--conf has the form spark.NAME=VALUE, not {text!r}")
        found[name] = value
    return found


def _escaped(text: str, *, is_key: bool = False) -> str:
    special = "\\=: #!" if is_key else "\\"
    found = "".join(f"\\{char}" if char in special else char for char in text)
    found = found.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    # Other characters follow as \uXXXX, in UTF-16.
    return "".join(map(_ascii, found.replace(" ", "\\ ", found.startswith(" "))))


def _ascii(char: str) -> str:
    if char.isascii():
        return char
    units = char.encode("utf-16-be").hex(" ", 2).split()
    return "".join(f"\\u{unit}" for unit in units)
