"""
How this package gets to a Spark that does not have it.

Best it is installed on every node.  Where that cannot be, as with a notebook on a
cluster of somebody else's, its source travels with the query: it is pure Python.  What
it needs (``pyarrow``, ``protobuf``, ``crc32c``, ``msgspec``) must be there.
"""

from __future__ import annotations

import io
import zipfile
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pydanube
from pydanube.spark.formats import SINKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

ARCHIVED_PACKAGES = (
    "client",
    "model",
    "reader",
    "schemas",
    "sinks",
    "spark",
    "tables",
    "wire",
)
"""The parts of the package that queries need; the broker stays at home."""


def ship_by_value(spark: SparkSession) -> None:
    """
    Have the formats of this package work in *spark*, which does not have it.

    The source of the client and of the formats, some 400 KiB, goes with every query
    of the session, into Spark's planning and into its tasks.  The minor versions of
    Python must be the same here and there.  Where the package is installed, that
    one is taken.
    """
    # Spark pickles with a copy of its own.
    from pyspark import cloudpickle  # noqa: PLC0415

    from pydanube.spark import pickled_source  # noqa: PLC0415

    cloudpickle.register_pickle_by_value(pickled_source)
    for name, module in formats().items():
        made = type(
            f"Shipped_{module}",
            (pickled_source.PickledDataSource,),
            {"archive": archive(), "format": name, "module": module},
        )
        spark.dataSource.register(made)


def formats() -> dict[str, str]:
    """The formats that are there, with the modules where Spark would find them."""
    modules = {name: f"pyspark_{name.replace('-', '_')}" for name in SINKS}
    return {name: each for name, each in modules.items() if find_spec(each)}


@lru_cache(maxsize=1)
def archive() -> bytes:
    """
    The package's source as a zip file that Python imports from.

    It is always the same for the same source.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as made:
        for name, path in sorted(_files()):
            # Without a date of its own.
            made.writestr(
                zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED
            )
    return content.getvalue()


def _files() -> Iterator[tuple[str, Path]]:
    home = Path(pydanube.__file__).parent
    for path in home.glob("*.py"):
        yield f"pydanube/{path.name}", path
    for part in ARCHIVED_PACKAGES:
        for path in (home / part).rglob("*.py"):
            yield f"pydanube/{path.relative_to(home)}", path
    for module in formats().values():
        found = find_spec(module)
        assert found is not None
        assert found.origin is not None
        yield f"{module}/__init__.py", Path(found.origin)
