"""The options of the source of a MySQL or MariaDB server's changes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from pydanube_connect.server_access import ServerAccess
from pydanube_connect.sources.pure.change_events import (
    Snapshot,
    SnapshotOption,
    TombstonesOption,
)


class MysqlOptions(ServerAccess, frozen=True, kw_only=True):
    """The options of ``MysqlSource``."""

    tables: Annotated[
        dict[str, str | None],
        Meta(
            description="The tables, `database.table`, each with the topic to publish "
            "to, in which `{schema}` and `{table}` stand for its database and its "
            "name; empty: the topic of the connector. `*` stands for all others of the "
            "server."
        ),
    ]
    host: Annotated[str, Meta(description="The server.")] = "127.0.0.1"
    port: Annotated[int, Meta(description="Its port.")] = 3306
    server_id: Annotated[
        int | None,
        Meta(
            description="The number by which the server knows this reader, which no "
            "replica has; by default a random one."
        ),
    ] = None
    snapshot: SnapshotOption = Snapshot.INITIAL
    tombstones: TombstonesOption = False

    @property
    def address(self) -> str:
        return f"the database at {self.host}:{self.port}"
