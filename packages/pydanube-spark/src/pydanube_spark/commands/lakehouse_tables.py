"""The tables that the options of `danube lakehouse` describe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from pydanube.model.errors import InvalidRequest
from pydanube_spark.tables.pure.table_options import (
    UndecodablePolicy,
    parse_delta,
    parse_iceberg,
)

if TYPE_CHECKING:
    from pydanube_spark.tables.export.zero_copy import ZeroCopyExporter
    from pydanube_spark.tables.table import LakeTable


class Kind(Enum):
    """The format of a table."""

    DELTA = "delta"
    ICEBERG = "iceberg"


def table_of(
    kind: Kind,
    name: str,
    catalog: Sequence[str] | None,
    storage: Sequence[str] | None,
) -> LakeTable:
    """
    Return the table that the options describe; it need not exist.

    Raises:
        InvalidRequest: The options do not fit the format.
    """
    if kind is Kind.DELTA:
        if catalog:
            raise InvalidRequest(
                "--catalog is for Iceberg; use --storage for a Delta table"
            )
        from pydanube_spark.tables.delta_table import DeltaLakeTable  # noqa: PLC0415

        given = {f"storage.{key}": value for key, value in _pairs(storage, "--storage")}
        delta = parse_delta({"path": name, **given})
        return DeltaLakeTable(delta.table, delta.connection)
    if storage:
        raise InvalidRequest(
            "--storage is for Delta; use --catalog for the object store of an Iceberg "
            "table"
        )
    from pydanube_spark.tables.iceberg_table import IcebergLakeTable  # noqa: PLC0415

    given = {f"catalog.{key}": value for key, value in _pairs(catalog, "--catalog")}
    iceberg = parse_iceberg({"table": name, **given})
    return IcebergLakeTable(iceberg.table, iceberg.connection)


def _pairs(texts: Sequence[str] | None, option: str) -> Iterator[tuple[str, str]]:
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"{option} takes NAME=VALUE, not {text!r}")
        yield name, value


def check_undecodable(
    wanted: UndecodablePolicy | None, dead_letters: str | None
) -> UndecodablePolicy:
    """
    Return the policy that the options --on-undecodable and --dead-letters mean.

    Raises:
        InvalidRequest: The options contradict each other.
    """
    if wanted is UndecodablePolicy.DEAD_LETTER and dead_letters is None:
        raise InvalidRequest("--on-undecodable dead-letter needs --dead-letters TABLE")
    if dead_letters is None:
        return wanted or UndecodablePolicy.FAIL
    if wanted not in (None, UndecodablePolicy.DEAD_LETTER):
        raise InvalidRequest("--dead-letters requires --on-undecodable dead-letter")
    return UndecodablePolicy.DEAD_LETTER


def zero_copy_of(url: str, topic: str, table: LakeTable) -> ZeroCopyExporter:
    """Return an exporter that registers segments in *table* without copying."""
    from pydanube_spark.tables.export.zero_copy import ZeroCopyExporter  # noqa: PLC0415
    from pydanube_spark.tables.iceberg_table import IcebergLakeTable  # noqa: PLC0415

    assert isinstance(table, IcebergLakeTable)
    return ZeroCopyExporter(url, topic, table)


def refuse_with_zero_copy(kind: Kind, *others: object) -> None:
    """
    Check the options of a zero-copy export.

    Raises:
        InvalidRequest: The table is not an Iceberg table, or one of *others* is set.
    """
    if kind is not Kind.ICEBERG:
        raise InvalidRequest(
            "--zero-copy is for Iceberg; a Delta table cannot refer to files outside "
            "of it"
        )
    if any(others):
        raise InvalidRequest(
            "--zero-copy registers segments unchanged; it excludes --raw, "
            "--on-undecodable, --dead-letters, --partition-by and --no-tail"
        )
