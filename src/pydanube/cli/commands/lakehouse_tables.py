"""The tables and exporters that the options of `danube lakehouse` describe."""

from __future__ import annotations

import os
import uuid
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any

from pydanube.cli.output import print_note
from pydanube.cli.spark_sessions import NO_SPARK, spark_session
from pydanube.model.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydanube.tables.export.exporter import Exporter, Runner
    from pydanube.tables.export.zero_copy import ZeroCopyExporter
    from pydanube.tables.table import LakeTable


class Kind(Enum):
    """The format of a table."""

    DELTA = "delta"
    ICEBERG = "iceberg"


class OnUndecodable(Enum):
    """The choice for messages that cannot be decoded."""

    FAIL = "fail"
    NULL = "null"
    DEAD_LETTER = "dead-letter"


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
        from pydanube.tables.delta_table import DeltaLakeTable  # noqa: PLC0415
        from pydanube.tables.table_options import parse_delta  # noqa: PLC0415

        given = {f"storage.{key}": value for key, value in _pairs(storage, "--storage")}
        delta = parse_delta({"path": name, **given})
        return DeltaLakeTable(delta.table, delta.connection)
    if storage:
        raise InvalidRequest(
            "--storage is for Delta; use --catalog for the object store of an Iceberg "
            "table"
        )
    from pydanube.tables.iceberg_table import IcebergLakeTable  # noqa: PLC0415
    from pydanube.tables.table_options import parse_iceberg  # noqa: PLC0415

    given = {f"catalog.{key}": value for key, value in _pairs(catalog, "--catalog")}
    iceberg = parse_iceberg({"table": name, **given})
    return IcebergLakeTable(iceberg.table, iceberg.connection)


def _pairs(texts: Sequence[str] | None, option: str) -> Iterator[tuple[str, str]]:
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"{option} takes NAME=VALUE, not {text!r}")
        yield name, value


def dead_letters_of(
    kind: Kind,
    name: str | None,
    catalog: Sequence[str] | None,
    storage: Sequence[str] | None,
    wanted: OnUndecodable | None,
) -> LakeTable | None:
    """
    Return the table for dead letters, if the options name one.

    Raises:
        InvalidRequest: The options contradict each other.
    """
    if (wanted is OnUndecodable.DEAD_LETTER) and name is None:
        raise InvalidRequest("--on-undecodable dead-letter needs --dead-letters TABLE")
    if name is None:
        return None
    if wanted not in (None, OnUndecodable.DEAD_LETTER):
        raise InvalidRequest("--dead-letters requires --on-undecodable dead-letter")
    return table_of(kind, name, catalog, storage)


def exporter_of(
    runner: Runner,
    table: LakeTable,
    dead_letters: LakeTable | None,
    *,
    undecodable: OnUndecodable | None,
    partition_by: str,
    **given: Any,
) -> Exporter:
    """Return an exporter to *table*."""
    from pydanube.tables.export.exporter import (  # noqa: PLC0415
        Exporter,
        ExportOptions,
    )
    from pydanube.tables.table_options import (  # noqa: PLC0415
        UndecodablePolicy,
        parse_partition_by,
    )

    default = OnUndecodable.DEAD_LETTER if dead_letters else OnUndecodable.FAIL
    return Exporter(
        ExportOptions(
            undecodable=UndecodablePolicy((undecodable or default).value),
            partition_by=parse_partition_by(partition_by),
            cores=os.cpu_count() or 1,
            **given,
        ),
        table,
        runner,
        dead_letters=dead_letters,
        unique=lambda: uuid.uuid4().hex,
    )


def zero_copy_of(url: str, topic: str, table: LakeTable) -> ZeroCopyExporter:
    """Return an exporter that registers segments in *table* without copying."""
    from pydanube.tables.export.zero_copy import ZeroCopyExporter  # noqa: PLC0415
    from pydanube.tables.iceberg_table import IcebergLakeTable  # noqa: PLC0415

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


@contextmanager
def runner_of(master: str) -> Iterator[Runner]:
    """Yield what runs the tasks of an export: threads, or Spark."""
    from pydanube.tables.export.exporter import (  # noqa: PLC0415
        spark_runner,
        thread_runner,
    )

    if master == NO_SPARK:
        yield thread_runner(os.cpu_count() or 1)
        return
    print_note(f"Starting Spark on {master}.")
    with spark_session("danube lakehouse", master) as spark:
        yield spark_runner(spark)
