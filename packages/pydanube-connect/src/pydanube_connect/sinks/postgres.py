"""A sink that writes messages as rows of a PostgreSQL table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

import msgspec
from msgspec import Meta

from pydanube.client.messages.messages import Message
from pydanube.declarations.pure.sections import Section
from pydanube_connect.connector import Sink
from pydanube_connect.postgres_access import (
    Translation,
    connection_arguments,
    quoted,
)
from pydanube_connect.pure.failures import ConnectorFailed, Rejected, Transient
from pydanube_connect.sinks.postgres_rows import (
    Envelope,
    InvalidRow,
    Row,
    TableFormat,
    Truncate,
    UnknownColumn,
)

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Error  # An extra.


OF_ROW = frozenset({"21", "22", "23", "44", "54", "P0"})
"""
The classes of SQLSTATE that depend on the row.

They are its values, the constraints of the table, the limits of PostgreSQL, such as the
size of a value in an index, and what functions of triggers raise.
"""
TABLE_CHANGED = frozenset({"42703", "42P01"})
"""A column or the table is gone."""


class PostgresSinkOptions(Section, frozen=True, kw_only=True):
    """The options of ``PostgresSink``."""

    url: Annotated[
        str,
        Meta(
            description="The database, as libpq names it, such as "
            "`postgresql://user@host/shop?sslmode=verify-full`."
        ),
    ]
    table: Annotated[
        str, Meta(description="The table, `orders` or `schema.orders`, which exists.")
    ]
    password: Annotated[
        str | None, Meta(description="The password, if it is not in `url`.")
    ] = None
    key: Annotated[
        list[str],
        Meta(
            description="The columns that identify a row, with a unique index: a "
            "message replaces the row with its key. By default each message is a new "
            "row."
        ),
    ] = []
    envelope: Annotated[
        Envelope,
        Meta(
            description="Whether a message is a row as a JSON object, or an event of "
            "Debezium."
        ),
    ] = Envelope.ROW
    truncate: Annotated[
        Truncate,
        Meta(
            description="Whether an event of Debezium that empties its table is "
            "refused, ignored, or deletes all rows of this one, too."
        ),
    ] = Truncate.FAIL


class PostgresSink(Sink):
    """
    Writes messages, JSON objects, as rows of a table of PostgreSQL.

    Delivery: at least once; with `key` a repeated message changes nothing.
    """

    Options = PostgresSinkOptions
    extra = "postgres-cdc"

    def __init__(self, options: PostgresSinkOptions) -> None:
        super().__init__(options)
        self._connection: AsyncConnection[Any] | None = None
        self._table: TableFormat
        self._arguments: dict[str, Any]
        self._translation: Translation

    @classmethod
    def problems(cls, options: PostgresSinkOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = {
            name: "must not be empty"
            for name in ("url", "table")
            if not getattr(options, name).strip()
        }
        if options.table.count(".") > 1:
            found["table"] = "is 'table' or 'schema.table'"
        if options.envelope is Envelope.DEBEZIUM and not options.key:
            found["key"] = "is missing: events of Debezium change and delete rows"
        if options.truncate is not Truncate.FAIL and (
            options.envelope is not Envelope.DEBEZIUM
        ):
            found["truncate"] = "is only for envelope: debezium"
        return found

    @classmethod
    def needs_order_with(cls, options: PostgresSinkOptions) -> bool:
        """Return whether truncations are applied, which delete all earlier rows."""
        return options.truncate is Truncate.APPLY

    async def __aenter__(self) -> Self:
        options: PostgresSinkOptions = self.options
        self._arguments = connection_arguments(options.url, options.password)
        self._translation = Translation([self._arguments.get("password", "")])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._disconnect()

    async def check(self) -> None:
        """Connect, and look for the table and its columns."""
        with self._translation:
            await self._connect()

    async def _disconnect(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    async def write(self, messages: Sequence[Message]) -> None:
        """Write the rows of *messages* in one transaction."""
        with self._translation:
            if self._connection is None or self._connection.closed:
                await self._connect()
            try:
                await self._write(messages)
            except Rejected:
                raise
            except BaseException:
                await self._disconnect()
                raise

    async def _connect(self) -> None:
        from psycopg import AsyncConnection  # noqa: PLC0415

        self._connection = await AsyncConnection.connect(
            # The table may change, and with it the plan of a prepared statement.
            **self._arguments,
            prepare_threshold=None,
        )
        await self._look_at_table()

    async def _look_at_table(self) -> None:
        assert self._connection is not None
        options: PostgresSinkOptions = self.options
        schema, _, table = options.table.rpartition(".")
        name = f"{quoted(schema)}.{quoted(table)}" if schema else quoted(table)
        rows = await self._connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) "
            "AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
            (name,),
        )
        columns = [each[0] for each in await rows.fetchall()]
        await self._connection.commit()
        if not columns:
            raise ConnectorFailed(f"there is no table {options.table}")
        for each in options.key:
            if each not in columns:
                raise ConnectorFailed(
                    f"the table {options.table} has no column {each!r}; it has "
                    f"{', '.join(columns)}"
                )
        self._table = TableFormat(
            name, columns, options.key, options.envelope, options.truncate
        )

    async def _write(self, messages: Sequence[Message]) -> None:
        from psycopg import Error  # noqa: PLC0415

        assert self._connection is not None
        rows, rejected, has_unknown = self._rows_of(messages)
        if has_unknown:
            # The column may have been added since.
            await self._look_at_table()
            rows, rejected, _ = self._rows_of(messages)
        try:
            async with self._connection.transaction():
                await self._execute(list(rows.values()))
        except Error as error:
            if error.sqlstate in TABLE_CHANGED:
                # The table is looked at again when the connection is opened.
                raise Transient(f"the table has changed: {error}") from error
            if not _is_of_row(error):
                raise
            # Some row is refused, or two keys differ only as texts.
            rejected |= await self._write_each(rows)
        if rejected:
            raise Rejected(rejected)

    def _rows_of(
        self, messages: Sequence[Message]
    ) -> tuple[dict[int, Row], dict[int, str], bool]:
        """Return the rows, why messages have none, and whether a column is unknown."""
        rows: dict[int, Row] = {}
        rejected: dict[int, str] = {}
        has_unknown = False
        for number, message in enumerate(messages):
            try:
                row = self._table.row(message)
            except InvalidRow as error:
                rejected[number] = str(error)
                has_unknown |= isinstance(error, UnknownColumn)
            else:
                if row is not None:
                    rows[number] = row
        return rows, rejected, has_unknown

    async def _write_each(self, rows: dict[int, Row]) -> dict[int, str]:
        """Write *rows* one by one, and return why some are refused."""
        from psycopg import Error  # noqa: PLC0415

        assert self._connection is not None
        refused = {}
        async with self._connection.transaction():
            for number, row in rows.items():
                try:
                    async with self._connection.transaction():
                        await self._execute([row])
                except Error as error:
                    if not _is_of_row(error):
                        raise
                    refused[number] = f"the database: {' '.join(str(error).split())}"
        return refused

    async def _execute(self, rows: Sequence[Row]) -> None:
        assert self._connection is not None
        for run in self._table.runs(rows):
            statement = self._table.statement(run[0])
            if run[0].is_truncation:
                await self._connection.execute(statement)
                continue
            values = msgspec.json.encode([each.values for each in run]).decode()
            await self._connection.execute(statement, (values,))


def _is_of_row(error: Error) -> bool:
    """Return whether a row has caused *error*: the same would happen again."""
    return (error.sqlstate or "")[:2] in OF_ROW
