"""
Data sources for a Spark whose Python does not have this package.

Spark pickles this module by value, together with an archive of the package's source.
The module imports nothing of the package.  The receiving process unpacks the
archive and imports the real data source from it.
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
    """Delegates to a data source of this package; each format has a subclass."""

    archive = b""
    format = ""
    module = ""
    """The module of the real data source, which is called DefaultSource there."""

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


def attach_archive(archive: bytes, value: Any) -> Any:
    """Return *value* after registering that its pickles contain *archive*."""
    copyreg.pickle(type(value), partial(reduce_with_archive, archive))
    return value


def reduce_with_archive(archive: bytes, value: Any) -> Any:
    """Reduce *value* so that unpickling unpacks *archive* before *value* itself."""
    return rebuild, (archive, pickle.dumps(value.__reduce_ex__(4)))


def rebuild(archive: bytes, body: bytes) -> Any:
    """Rebuild a value that ``reduce_with_archive`` reduced."""
    ensure_importable(archive)
    # The driver sent it, as it sends all pickles of Spark.
    make, arguments, state, *_ = pickle.loads(body)  # noqa: S301
    value = make(*arguments)
    vars(value).update(state or {})
    return attach_archive(archive, value)


def ensure_importable(archive: bytes) -> None:
    """Make the package importable from *archive*, unless it is installed."""
    if importlib.util.find_spec("pydanube_spark") is not None:
        return
    digest = hashlib.sha256(archive).hexdigest()[:16]
    directory = own_temporary_directory(f"pydanube-{os.getuid()}-{digest}")
    path = directory / "source"
    if not path.exists():
        # Python caches the bytecode of files, but not of zip archives.
        made = tempfile.mkdtemp(dir=directory)
        zipfile.ZipFile(io.BytesIO(archive)).extractall(made)
        with suppress(OSError):
            # Another process may have unpacked it in the meantime.
            Path(made).rename(path)
        shutil.rmtree(made, ignore_errors=True)
    sys.path.insert(0, str(path))
    importlib.invalidate_caches()


def own_temporary_directory(name: str) -> Path:
    """Return the temporary directory *name*, or a new one if it is not this user's."""
    directory = Path(tempfile.gettempdir()) / name
    directory.mkdir(mode=stat.S_IRWXU, exist_ok=True)
    found = directory.lstat()
    # Other users may create files in the temporary directory; ours holds programs.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return Path(tempfile.mkdtemp(prefix="pydanube-"))
    return directory
