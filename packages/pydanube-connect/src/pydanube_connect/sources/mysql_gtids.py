"""Sets of global transaction identifiers, of MySQL and of MariaDB.  Pure."""

from __future__ import annotations

from typing import Protocol


class Gtids(Protocol):
    """The transactions that were read; its text tells the server where to continue."""

    def add(self, gtid: str) -> None:
        """Add a transaction."""


class MariaGtids:
    """The last transaction of each domain, such as ``0-1-17,2-1-5``."""

    def __init__(self, text: str) -> None:
        self._last = {
            each.partition("-")[0]: each for each in text.split(",") if each.strip()
        }

    def add(self, gtid: str) -> None:
        """Add a transaction."""
        self._last[gtid.partition("-")[0]] = gtid

    def __str__(self) -> str:
        return ",".join(self._last.values())


class MysqlGtids:
    """Intervals of transactions of each server, such as ``3E11FA47-…:1-17``."""

    def __init__(self, text: str) -> None:
        from pymysqlreplication.gtid import GtidSet  # noqa: PLC0415

        self._set = GtidSet(text.replace("\n", ""))

    def add(self, gtid: str) -> None:
        """Add a transaction."""
        from pymysqlreplication.gtid import Gtid  # noqa: PLC0415

        self._set.merge_gtid(Gtid(gtid))

    def __str__(self) -> str:
        return str(self._set)


def gtids_of(text: str, *, is_mariadb: bool) -> Gtids:
    """Return the set that the server writes as *text*."""
    return MariaGtids(text) if is_mariadb else MysqlGtids(text)
