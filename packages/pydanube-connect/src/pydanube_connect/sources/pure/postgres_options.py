"""The options of the source of a PostgreSQL database's changes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from pydanube.declarations.pure.sections import Section
from pydanube_connect.sources.pure.change_events import (
    Snapshot,
    SnapshotOption,
    TombstonesOption,
)


class PostgresOptions(Section, frozen=True, kw_only=True):
    """The options of ``PostgresSource``."""

    url: Annotated[
        str,
        Meta(
            description="The database, as libpq names it, such as "
            "`postgresql://user@host/shop?sslmode=verify-full`."
        ),
    ]
    tables: Annotated[
        dict[str, str | None],
        Meta(
            description="The tables, `schema.table`, each with the topic to publish "
            "to, in which `{schema}` and `{table}` stand for its name; empty: the "
            "topic of the connector. `*` stands for all others of the publication."
        ),
    ]
    password: Annotated[
        str | None, Meta(description="The password, if it is not in `url`.")
    ] = None
    slot: Annotated[
        str,
        Meta(
            description="The replication slot, which is created. Each connector needs "
            "its own."
        ),
    ] = "danube"
    publication: Annotated[
        str | None,
        Meta(
            description="The publication; by default it has the name of the slot, and "
            "is created for `tables` if it does not exist."
        ),
    ] = None
    snapshot: SnapshotOption = Snapshot.INITIAL
    tombstones: TombstonesOption = False
