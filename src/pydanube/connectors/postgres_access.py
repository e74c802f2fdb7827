"""The access to PostgreSQL, for the source and the sink: errors, and quoted names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pydanube.connectors.failures import ConnectorFailed, Transient
from pydanube.model.redaction import mask


class Translation:
    """Turns errors of the database into those of connectors, without *secrets*."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        import psycopg  # noqa: PLC0415

        if not isinstance(error, psycopg.Error):
            return
        text = mask(f"the database: {' '.join(str(error).split())}", self._secrets)
        # Also ObjectInUse: the connection of a killed run has not ended yet.
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            raise Transient(text) from error
        raise ConnectorFailed(text) from error


def quoted(name: str) -> str:
    """Return *name* as SQL has identifiers."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """Return *text* as SQL has strings."""
    return "'" + text.replace("'", "''") + "'"
