"""
A copy of Spark's home whose Python processes start faster.

Spark puts the archive ``python/lib/pyspark.zip`` of its home on the path of every
Python process, which then compiles what it imports from there.  The home that this
module makes has a directory of that name, which links to the installed package and the
bytecode next to it.  Everything else links to the real home.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

log = logging.getLogger(__name__)


def find_spark_home(cache: Path) -> Path | None:
    """
    Return a home in *cache* for the installed PySpark; None if there is none.

    Nothing is written to the installed packages.  Several processes may do this at the
    same time.  Each installation of PySpark has a home of its own.
    """
    pyspark, py4j = _directory_of("pyspark"), _directory_of("py4j")
    if pyspark is None or py4j is None:
        return None
    try:
        return _made_home(pyspark, py4j, cache)
    except OSError as error:
        log.info("Python processes of Spark start slowly: %s", error)
        return None


def _made_home(pyspark: Path, py4j: Path, cache: Path) -> Path | None:
    archives = [each.name for each in (pyspark / "python" / "lib").glob("*.zip")]
    packages = {name: py4j if name.startswith("py4j") else pyspark for name in archives}
    if "pyspark.zip" not in packages or len(packages) != 2:
        # Another version may arrange this differently.
        return None
    version = (pyspark / "version.py").stat()
    identity = f"{pyspark} {py4j} {version.st_ino} {version.st_mtime_ns}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    home = cache / f"spark-home-{digest}"
    if (home / "python" / "lib" / "pyspark.zip" / "pyspark").is_dir():
        return home
    made = Path(tempfile.mkdtemp(prefix="spark-home-", dir=cache))
    try:
        for each in pyspark.iterdir():
            if each.name != "python":
                (made / each.name).symlink_to(each)
        for name, package in packages.items():
            library = made / "python" / "lib" / name
            library.mkdir(parents=True)
            (library / package.name).symlink_to(package)
        _rename(made, home)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return home


def _rename(made: Path, home: Path) -> None:
    try:
        made.rename(home)
    except OSError:
        # Another process may have made it in the meantime.
        if not home.is_dir():
            raise


def _directory_of(package: str) -> Path | None:
    spec = find_spec(package)
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return None
    return Path(spec.origin).resolve().parent
