"""
An archive of the package's source, for a Spark that does not have the package.

If the package cannot be installed on every node, Spark sends its source, which is pure
Python, with each query.  The nodes must have what the package depends on (``pyarrow``,
``protobuf``, ``crc32c``, ``msgspec``).
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pydanube
from pydanube_spark.formats import SINKS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVED_PACKAGES = (
    "aio",
    "client",
    "model",
    "security",
    "objects",
    "schemas",
    "wire",
)
"""The parts of ``pydanube`` that queries need."""
ARCHIVED_PARTS = ("pure", "reader", "sinks", "tables")
"""The parts of this package that queries need, beside its own modules."""


def ship_by_value(spark: SparkSession) -> None:
    """
    Register the formats of this package in *spark*, which does not have the package.

    Spark sends the source of the client and of the formats, about 700 KiB, with every
    query of the session to its planning processes and its tasks.  Both sides need the
    same minor version of Python.  A process that has the package installed uses the
    installed one.
    """
    # Spark pickles with its own copy of cloudpickle.
    from pyspark import cloudpickle  # noqa: PLC0415

    from pydanube_spark import pickled_source  # noqa: PLC0415

    cloudpickle.register_pickle_by_value(pickled_source)
    for name, module in formats().items():
        made = type(
            f"Shipped_{module}",
            (pickled_source.PickledDataSource,),
            {"archive": archive(), "format": name, "module": module},
        )
        spark.dataSource.register(made)


def formats() -> dict[str, str]:
    """Return the installed formats and the modules in which Spark finds them."""
    modules = {name: f"pyspark_{name.replace('-', '_')}" for name in SINKS}
    return {name: each for name, each in modules.items() if find_spec(each)}


@lru_cache(maxsize=1)
def archive() -> bytes:
    """
    Return the package's source as a zip file.

    The same source always gives the same bytes.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as made:
        for name, path in sorted(_files()):
            # A ZipInfo that is made from a name has a fixed date.
            made.writestr(
                zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED
            )
    return content.getvalue()


def _files() -> Iterator[tuple[str, Path]]:
    yield from _sources(Path(pydanube.__file__).parent, ARCHIVED_PACKAGES)
    yield from _sources(Path(__file__).parent, ARCHIVED_PARTS)
    for module in formats().values():
        found = find_spec(module)
        assert found is not None
        assert found.origin is not None
        yield f"{module}/__init__.py", Path(found.origin)


def _sources(home: Path, parts: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Return the modules of the package *home* and of its *parts*, by their names."""
    for path in home.glob("*.py"):
        yield f"{home.name}/{path.name}", path
    for part in parts:
        for path in (home / part).rglob("*.py"):
            yield f"{home.name}/{path.relative_to(home)}", path
