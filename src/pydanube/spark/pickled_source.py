"""
The formats of this package for a Spark whose Python does not have it.

Everything here is pickled by value, with an archive of the package's source, and so
imports nothing of ours: it unpacks the archive where it arrives, and what it stands
for is imported from there.
"""

from __future__ import annotations

import copyreg
import hashlib
import importlib
import importlib.util
import io
import os
import pickle
import shutil
import stat
import sys
import tempfile
import zipfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource


class PickledDataSource(DataSource):  # type: ignore[misc]
    """A format of this package; each has a subclass."""

    archive = b""
    format = ""
    module = ""
    """Where the data source is that it stands for, under the name DefaultSource."""

    @classmethod
    def name(cls) -> str:
        return cls.format

    def schema(self) -> Any:
        return self._source().schema()

    def reader(self, schema: Any) -> Any:
        return attach_archive(self.archive, self._source().reader(schema))

    def writer(self, schema: Any, overwrite: bool) -> Any:
        return attach_archive(self.archive, self._source().writer(schema, overwrite))

    def streamReader(self, schema: Any) -> Any:  # noqa: N802
        return attach_archive(self.archive, self._source().streamReader(schema))

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        return attach_archive(
            self.archive, self._source().streamWriter(schema, overwrite)
        )

    def _source(self) -> Any:
        ensure_importable(self.archive)
        return importlib.import_module(self.module).DefaultSource(self.options)


def attach_archive(archive: bytes, thing: Any) -> Any:
    """*thing*, which from now on takes *archive* along wherever it is pickled to."""
    copyreg.pickle(type(thing), partial(reduce_with_archive, archive))
    return thing


def reduce_with_archive(archive: bytes, thing: Any) -> Any:
    """How *thing* is pickled: nobody looks into it before its package is there."""
    return rebuild, (archive, pickle.dumps(thing.__reduce_ex__(4)))


def rebuild(archive: bytes, body: bytes) -> Any:
    """What was taken apart."""
    ensure_importable(archive)
    # From the driver, as everything that Spark sends.
    make, arguments, state, *_ = pickle.loads(body)  # noqa: S301
    thing = make(*arguments)
    vars(thing).update(state or {})
    return attach_archive(archive, thing)


def ensure_importable(archive: bytes) -> None:
    """Have the package importable; where it is installed, that one is taken."""
    if importlib.util.find_spec("pydanube") is not None:
        return
    directory = directory_for(archive)
    path = directory / "source"
    if not path.exists():
        # Files, so that Python keeps what it has compiled of them.
        made = tempfile.mkdtemp(dir=directory)
        zipfile.ZipFile(io.BytesIO(archive)).extractall(made)
        with suppress(OSError):
            # Another process may have done the same meanwhile.
            Path(made).rename(path)
        shutil.rmtree(made, ignore_errors=True)
    sys.path.insert(0, str(path))
    importlib.invalidate_caches()


def directory_for(archive: bytes) -> Path:
    """Where processes of this user on this machine share an unpacked *archive*."""
    name = f"pydanube-{os.getuid()}-{hashlib.sha256(archive).hexdigest()[:16]}"
    directory = Path(tempfile.gettempdir()) / name
    directory.mkdir(mode=stat.S_IRWXU, exist_ok=True)
    found = directory.lstat()
    # Others may write to the temporary directory, and this one holds programs.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return Path(tempfile.mkdtemp(prefix="pydanube-"))
    return directory
