"""The access to PostgreSQL, for the source and the sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from pydanube.model.redaction import mask
from pydanube.model.sqlstates import is_temporary
from pydanube_connect.pure.failures import ConnectorFailed, Transient


def connection_arguments(url: str, password: str | None) -> dict[str, Any]:
    """
    Return the arguments of a connection to *url*, with the password if there is one.

    Raises:
        ConnectorFailed: *url* is malformed.
    """
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    with Translation([password or ""]):
        found = conninfo_to_dict(url)
    if password is not None:
        found["password"] = password
    return {"application_name": "pydanube", "connect_timeout": 10, **found}


class Translation:
    """Turns errors of the database into those of connectors, without *secrets*."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = [each for each in secrets if each]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        import psycopg  # noqa: PLC0415

        if not isinstance(error, psycopg.Error):
            return
        text = mask(f"the database: {' '.join(str(error).split())}", self._secrets)
        is_disconnected = isinstance(
            error, psycopg.OperationalError | psycopg.InterfaceError
        )
        if is_temporary(error.sqlstate, is_disconnected=is_disconnected):
            raise Transient(text) from error
        raise ConnectorFailed(text) from error


def quoted(name: str) -> str:
    """Return *name* as SQL has identifiers."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """Return *text* as SQL has strings."""
    return "'" + text.replace("'", "''") + "'"
