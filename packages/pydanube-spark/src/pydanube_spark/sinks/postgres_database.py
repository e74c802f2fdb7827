"""
A connection to PostgreSQL, with its errors translated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from pydanube.model.errors import BrokerError, InvalidRequest, Unavailable
from pydanube.model.extras import require
from pydanube.model.sqlstates import is_temporary
from pydanube_spark.sinks import secrets
from pydanube_spark.sinks.pure import postgres_sql
from pydanube_spark.sinks.pure.postgres_sql import Column, Plan, TableName, Target
from pydanube_spark.sinks.pure.staging import cast_problem, literal

CONNECT_TIMEOUT_S = 10
LOCK_TIMEOUT = "1s"
"""How long dropping staging tables waits for an attempt that has not ended yet."""

_IO = 10
"""The driver's status if it has no connection, or has lost it."""


def connect(uri: str) -> Database:
    """
    Connect to the database at *uri*.

    Raises:
        Unavailable: The server does not answer, or refuses the connection.
        MissingExtra: The driver is not installed.
    """
    require("postgres", "danube-postgres")
    from adbc_driver_postgresql import dbapi  # noqa: PLC0415  # An extra.

    with _translated_errors(uri):
        return Database(dbapi.connect(_with_connect_timeout(uri)), uri)


class Database:
    """One connection; changes outside of ``transaction`` are rolled back."""

    def __init__(self, connection: Any, uri: str) -> None:
        self._connection = connection
        self._uri = uri

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the statements of the body, or roll all of them back."""
        try:
            yield
            with _translated_errors(self._uri):
                self._connection.commit()
        except BaseException:
            self._roll_back()
            raise

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of the query *statement*."""
        with _translated_errors(self._uri), self._connection.cursor() as cursor:
            cursor.execute(statement)
            found: list[tuple[Any, ...]] = cursor.fetchall()
            return found

    def read(self, statement: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the query *statement*; the first batch is empty."""
        with _translated_errors(self._uri), self._connection.cursor() as cursor:
            cursor.execute(statement)
            reader = cursor.fetch_record_batch()
            yield pa.RecordBatch.from_pylist([], schema=reader.schema)
            yield from reader

    def execute(self, statement: str) -> None:
        with _translated_errors(self._uri), self._connection.cursor() as cursor:
            cursor.execute(statement)

    def create_table(self, statement: str, creates: TableName) -> None:
        """
        Run a statement that *creates* a table, unless the table exists.

        A lock serializes concurrent creations, which fail even with IF NOT EXISTS.
        """
        name = literal(str(creates))
        if self.query(f"SELECT to_regclass({name}) IS NULL") == [(True,)]:
            self.execute(f"SELECT pg_advisory_xact_lock(hashtext({name}))")
            self.execute(statement)

    def copy(self, table: TableName, batch: pa.RecordBatch) -> None:
        """Insert the rows of *batch* into *table*, which has exactly their types."""
        with _translated_errors(self._uri), self._connection.cursor() as cursor:
            cursor.adbc_ingest(
                table.name, batch, mode="append", db_schema_name=table.schema
            )

    def describe(self, table: TableName) -> Target:
        """Return the columns and unique indexes of *table*; none if it is missing."""
        columns = self.query(postgres_sql.describe_columns(table))
        unique = self.query(postgres_sql.describe_unique(table))
        return Target(
            tuple(Column(*row) for row in columns),
            postgres_sql.unique_columns((index, name) for index, name in unique),
        )

    def cast_problems(self, plan: Plan, name: str, to: str) -> list[str]:
        """Return the problem if the column *name* cannot be cast to *to*."""
        kind = plan.schema.field(name).type
        try:
            self.query(postgres_sql.try_cast(kind, to))
        except InvalidRequest:
            self._roll_back()
            has = postgres_sql.column_type(kind)
            return [cast_problem(name, has, to)]
        return []

    def drop(self, tables: Sequence[TableName]) -> None:
        """Drop *tables*, unless one of them is in use."""
        with self.transaction():
            self.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
            for table in tables:
                self.execute(f"DROP TABLE IF EXISTS {table}")

    def close(self) -> None:
        with suppress(Exception):  # It may be broken already.
            self._connection.close()

    def _roll_back(self) -> None:
        with suppress(Exception):
            self._connection.rollback()


@contextmanager
def _translated_errors(uri: str) -> Iterator[None]:
    from adbc_driver_manager import Error  # noqa: PLC0415  # An extra.

    try:
        yield
    except Error as error:
        raise translate(error, uri) from None


def translate(error: Any, uri: str) -> BrokerError:
    """Return the driver's *error* as one of ours, without the secrets of *uri*."""
    text, _, _ = str(error).partition("\n\nQuery was:")
    message = secrets.redact(" ".join(text.split()), secrets.in_url(uri))
    is_disconnected = int(error.status_code) == _IO
    if is_temporary(error.sqlstate, is_disconnected=is_disconnected):
        return Unavailable(f"PostgreSQL: {message}")
    return InvalidRequest(f"PostgreSQL: {message}")


def _with_connect_timeout(uri: str) -> str:
    """Return *uri* with a connect timeout, unless it has one."""
    if "connect_timeout" in uri:
        return uri
    if "://" not in uri:
        return f"{uri} connect_timeout={CONNECT_TIMEOUT_S}"
    joint = "&" if "?" in uri else "?"
    return f"{uri}{joint}connect_timeout={CONNECT_TIMEOUT_S}"
