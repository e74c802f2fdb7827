"""
Drivers that are killed at one step of what they write, and the sinks that they drive.

A step is a call to the storage of a table, to its catalog or to a database.  A driver
that was killed makes no further one, so nothing can be cleaned up after it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.io import FileIO
from pyiceberg.table import Table

from pydanube_spark.sinks import postgres_database
from pydanube_spark.sinks.postgres_database import Database
from pydanube_spark.tables.delta_table import DeltaLakeTable
from pydanube_spark.tables.iceberg_table import IcebergLakeTable

if TYPE_CHECKING:
    from collections.abc import Iterator


class Killed(BaseException):
    """The driver ends here."""


class Driver:
    """A driver that is killed before the step *at*, the first of which is 1."""

    def __init__(self, at: int) -> None:
        self._left = at

    @property
    def is_killed(self) -> bool:
        return self._left <= 0

    def step(self) -> None:
        self._left -= 1
        if self.is_killed:
            raise Killed

    def connect(self, uri: str) -> Database:
        """Connect to PostgreSQL, see ``postgres_database.connect``."""
        self.step()
        return _DyingDatabase(postgres_database.connect(uri)._connection, uri, self)


class _DyingDatabase(Database):
    def __init__(self, connection: Any, uri: str, driver: Driver) -> None:
        super().__init__(connection, uri)
        self._driver = driver

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():
            yield
            self._driver.step()
        self._driver.step()

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        self._driver.step()
        return super().query(statement)

    def execute(self, statement: str) -> None:
        self._driver.step()
        super().execute(statement)

    def copy(self, table: Any, batch: Any) -> None:
        self._driver.step()
        super().copy(table, batch)


class _DyingLocation:
    """The storage of a Delta table."""

    def __init__(self, location: Any, driver: Driver) -> None:
        self._location = location
        self._driver = driver
        self.schema = location.schema
        self.keys = location.keys

    def create(self, name: str) -> tuple[str, Any]:
        self._driver.step()
        return self._location.create(name)

    def open(self, path: str) -> Any:
        self._driver.step()
        return self._location.open(path)

    def describe(self, path: str, partition: Any, metadata: Any) -> Any:
        self._driver.step()
        return self._location.describe(path, partition, metadata)

    def delete(self, path: str) -> None:
        self._driver.step()
        self._location.delete(path)


@dataclass(frozen=True, kw_only=True)
class DyingDelta(DeltaLakeTable):
    """A Delta table; its library writes a commit in one step."""

    driver: Driver

    def prepare(self, *given: Any, **named: Any) -> Any:
        self.driver.step()
        location = super().prepare(*given, **named)
        return _DyingLocation(location, self.driver)

    def _commit(self, *given: Any, **named: Any) -> None:
        self.driver.step()
        super()._commit(*given, **named)
        self.driver.step()

    def _merge(self, *given: Any, **named: Any) -> None:
        self.driver.step()
        super()._merge(*given, **named)
        self.driver.step()


@dataclass(frozen=True, kw_only=True)
class DyingIceberg(IcebergLakeTable):
    """An Iceberg table, whose catalog and files are accessed step by step."""

    driver: Driver

    @contextmanager
    def _catalog(self) -> Iterator[Any]:
        with super()._catalog() as catalog:
            yield _DyingCatalog(catalog, self.driver)


class _DyingCatalog:
    def __init__(self, catalog: Any, driver: Driver) -> None:
        self._catalog = catalog
        self._driver = driver
        write = catalog._write_metadata

        def write_metadata(*given: Any, **named: Any) -> None:
            write(*given, **named)
            # The catalog has the metadata of before.
            driver.step()

        catalog._write_metadata = write_metadata

    def __getattr__(self, name: str) -> Any:
        self._driver.step()
        return getattr(self._catalog, name)

    def load_table(self, name: str) -> Table:
        self._driver.step()
        table = self._catalog.load_table(name)
        io = _DyingFiles(table.io, self._driver)
        return Table(table.name(), table.metadata, table.metadata_location, io, self)

    def commit_table(self, *given: Any) -> Any:
        self._driver.step()
        answer = self._catalog.commit_table(*given)
        self._driver.step()
        return answer


class _DyingFiles(FileIO):
    def __init__(self, io: FileIO, driver: Driver) -> None:
        super().__init__(io.properties)
        self._io = io
        self._driver = driver

    def new_input(self, location: str) -> Any:
        self._driver.step()
        return self._io.new_input(location)

    def new_output(self, location: str) -> Any:
        self._driver.step()
        return self._io.new_output(location)

    def delete(self, location: Any) -> None:
        self._driver.step()
        self._io.delete(location)
