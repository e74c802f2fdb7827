"""
A source of the rows of a database table, which it asks for new ones regularly.

A column whose values rise with each new row says which rows are new.  Its last value is
stored with the messages, so each row is published exactly once.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

from msgspec import Meta

from pydanube.declarations.pure.sections import Section, parse_duration
from pydanube.model.redaction import mask
from pydanube_connect.connector import Source
from pydanube_connect.option_problems import duration_problems
from pydanube_connect.pure.failures import ConnectorFailed, Transient
from pydanube_connect.pure.records import Batch, Record

if TYPE_CHECKING:
    from sqlalchemy import Column, Engine, Table  # An extra.

BATCH_ROWS_MAX = 1000


class SqlOptions(Section, frozen=True, kw_only=True):
    """The options of ``SqlSource``."""

    url: Annotated[
        str,
        Meta(
            description="The database, as SQLAlchemy names it, such as "
            "`postgresql://user@host/shop`."
        ),
    ]
    password: Annotated[
        str | None, Meta(description="The password, if it is not in `url`.")
    ] = None
    table: Annotated[
        str, Meta(description="The table or view, `orders` or `schema.orders`.")
    ]
    column: Annotated[
        str,
        Meta(
            description="A column whose value is higher in each new row, such as a "
            "serial number."
        ),
    ]
    columns: Annotated[
        list[str], Meta(description="The columns to publish; by default all.")
    ] = []
    key: Annotated[
        str | None, Meta(description="The column with the key of the message.")
    ] = None
    poll: Annotated[
        str, Meta(description="How long to wait when there are no new rows.")
    ] = "1s"


class SqlSource(Source):
    """
    Publishes new rows of a table, one message for each, as JSON objects.

    Delivery: exactly once, in the order of `column`. Changed and deleted rows are not
    noticed, nor are rows that appear with a lower value than one that was read.
    """

    Options = SqlOptions
    extra = "sql"

    @classmethod
    def problems(cls, options: SqlOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = {
            name: "must not be empty"
            for name in ("url", "table", "column")
            if not getattr(options, name).strip()
        }
        if options.table.count(".") > 1:
            found["table"] = "is 'table' or 'schema.table'"
        return found | duration_problems(options, "poll")

    async def batches(self, position: Any) -> AsyncIterator[Batch]:
        """Yield the rows after *position*, the last value of the column."""
        reader = await asyncio.to_thread(_Reader, self.options)
        poll_s = parse_duration(self.options.poll)
        try:
            while True:
                rows = await asyncio.to_thread(reader.read, position)
                if rows:
                    position = to_json(rows[-1][self.options.column])
                    yield Batch([self._record(each) for each in rows], position)
                if len(rows) < BATCH_ROWS_MAX:
                    await asyncio.sleep(poll_s)
        finally:
            await asyncio.to_thread(reader.close)

    def _record(self, row: dict[str, Any]) -> Record:
        options: SqlOptions = self.options
        names = options.columns or list(row)
        key = None if options.key is None else row[options.key]
        return Record(
            value={name: to_json(row[name]) for name in names},
            key=None if key is None else str(to_json(key)),
        )


class _Reader:
    """The connection to the database; its methods block."""

    def __init__(self, options: SqlOptions) -> None:
        from sqlalchemy import create_engine  # noqa: PLC0415
        from sqlalchemy.engine import make_url  # noqa: PLC0415
        from sqlalchemy.exc import ArgumentError  # noqa: PLC0415

        try:
            url = make_url(options.url)
            if url.drivername == "postgresql":
                # SQLAlchemy's default is a driver that no other connector needs.
                url = url.set(drivername="postgresql+psycopg")
            if options.password is not None:
                url = url.set(password=options.password)
            self._secrets = [str(url.password)] if url.password else []
            self._engine: Engine = create_engine(url, pool_pre_ping=True)
        except (ArgumentError, ImportError) as error:
            raise ConnectorFailed(f"the database cannot be used: {error}") from error
        self._options = options
        self._look_at_table()

    def _look_at_table(self) -> None:
        """Read the columns, which may change later."""
        from sqlalchemy import MetaData, Table  # noqa: PLC0415
        from sqlalchemy.exc import NoSuchTableError  # noqa: PLC0415

        options = self._options
        schema, _, name = options.table.rpartition(".")
        try:
            with _translated(self._secrets):
                self._table: Table = Table(
                    name, MetaData(), schema=schema or None, autoload_with=self._engine
                )
        except NoSuchTableError as error:
            raise ConnectorFailed(f"there is no table {options.table}") from error
        self._rising = self._column(options.column)
        for each in (*options.columns, *([options.key] if options.key else [])):
            self._column(each)

    def _column(self, name: str) -> Column[Any]:
        columns = self._table.columns
        if name not in columns:
            raise ConnectorFailed(
                f"the table {self._table.name} has no column {name!r}; it has "
                f"{', '.join(columns.keys())}"
            )
        return columns[name]

    def read(self, position: Any) -> Sequence[dict[str, Any]]:
        """Return the next rows after *position*; None: the first ones."""
        from sqlalchemy import literal_column, select  # noqa: PLC0415

        with _translated(self._secrets), self._engine.connect() as connection:
            # Their names, without a row.
            no_rows: Any = select(literal_column("*")).select_from(self._table).limit(0)
            names = list(connection.execute(no_rows).keys())
        if names != list(self._table.columns.keys()):
            self._look_at_table()
        query = select(self._table).order_by(self._rising).limit(BATCH_ROWS_MAX)
        if position is not None:
            query = query.where(self._rising > self._value_of(position))
        else:
            query = query.where(self._rising.is_not(None))
        with _translated(self._secrets), self._engine.connect() as connection:
            return [dict(each) for each in connection.execute(query).mappings()]

    def _value_of(self, position: Any) -> Any:
        """Return a position, a JSON value, as the column has it."""
        kind = self._rising.type.python_type
        if isinstance(position, str) and kind in {dt.datetime, dt.date}:
            return kind.fromisoformat(position)
        return kind(position) if kind in {Decimal, UUID} else position

    def close(self) -> None:
        """Disconnect."""
        self._engine.dispose()


@contextmanager
def _translated(secrets: Sequence[str]) -> Iterator[None]:
    """Raise errors of the database as those of connectors, without *secrets*."""
    from sqlalchemy.exc import DBAPIError, ProgrammingError  # noqa: PLC0415

    try:
        yield
    except DBAPIError as error:
        text = mask(f"the database: {error.orig}", secrets)
        if isinstance(error, ProgrammingError):
            raise ConnectorFailed(text) from error
        raise Transient(text) from error


def to_json(value: Any) -> Any:
    """Return a value of a column as JSON has it; what JSON lacks becomes text."""
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID | dt.timedelta):
        return str(value)
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    return value
