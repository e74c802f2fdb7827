"""
A LanceDB database, with its errors translated.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from pydanube.model.errors import InvalidRequest, Unavailable
from pydanube.model.extras import require
from pydanube_spark.pure.sink import StagedRows
from pydanube_spark.sinks import secrets
from pydanube_spark.sinks.pure.staging import STAGING_AGE_MAX_DAYS

READ_ROWS = 4096


class Database:
    """A LanceDB database."""

    def __init__(self, uri: str, storage: Mapping[str, str]) -> None:
        """
        Connect.

        Raises:
            MissingExtra: LanceDB is not installed.
            Unavailable: The database cannot be opened.
        """
        require("lancedb", "danube-lancedb")
        import lancedb  # noqa: PLC0415  # An extra.

        self._secrets = [*storage.values(), *secrets.in_url(uri)]
        with self.translated_errors():
            self._database = lancedb.connect(uri, storage_options=dict(storage) or None)

    def names(self, start: str) -> list[str]:
        """Return the names of the tables that begin with *start*."""
        found: list[str] = []
        token = None
        with self.translated_errors():
            while True:
                page = self._database.list_tables(page_token=token)
                found += [name for name in page.tables if name.startswith(start)]
                token = page.page_token
                if not token:
                    return found

    def find(self, name: str) -> Any | None:
        """Return the table, or None if it does not exist."""
        with self.translated_errors():
            try:
                return self._database.open_table(name)
            except (ValueError, FileNotFoundError) as error:
                if "not found" in str(error):
                    return None
                raise

    def open(self, name: str) -> Any:
        with self.translated_errors():
            return self._database.open_table(name)

    def create(
        self, name: str, schema: pa.Schema, rows: pa.RecordBatchReader | None = None
    ) -> Any:
        """Create the table, and return it."""
        with self.translated_errors():
            return self._database.create_table(name, data=rows, schema=schema)

    def count(self, table: Any, condition: str | None = None) -> int:
        with self.translated_errors():
            found: int = table.count_rows(condition)
            return found

    def read(self, piece: StagedRows, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """
        Yield the staged rows.

        Raises:
            InvalidRequest: Some of them are missing.
        """
        table, count = self.open(piece.staging), 0
        with self.translated_errors():
            for batch in table.search().select(columns).to_batches(READ_ROWS):
                count += batch.num_rows
                yield batch
        if count != piece.row_count:
            raise InvalidRequest(
                f"{piece.staging} has {count} rows instead of {piece.row_count}"
            )

    def index(self, table: Any, column: str, kind: str, metric: str) -> None:
        """Create an index of *column*, unless there is one."""
        from lancedb import index  # noqa: PLC0415  # An extra.

        with self.translated_errors():
            if not any(column in each.columns for each in table.list_indices()):
                config = getattr(index, kind)(distance_type=metric)
                table.create_index(column, config=config)

    def is_expired(self, name: str) -> bool:
        """Return whether the staging table *name* belongs to an abandoned query."""
        table = self.find(name)
        if table is None:
            return False
        with self.translated_errors():
            made_s: float = table.list_versions()[0]["timestamp"].timestamp()
        return time.time_ns() / 1e9 - made_s > STAGING_AGE_MAX_DAYS * 86_400

    def drop(self, name: str) -> None:
        with self.translated_errors():
            self._database.drop_table(name, ignore_missing=True)

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Translate LanceDB's errors, without secrets."""
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            message = secrets.redact(" ".join(str(error).split()), self._secrets)
            kind = InvalidRequest if isinstance(error, ValueError) else Unavailable
            raise kind(f"LanceDB: {message}") from None
