"""Tests of what errors of PostgreSQL mean for a connector."""

import pytest

psycopg = pytest.importorskip("psycopg")

from psycopg import errors  # noqa: E402

from pydanube_connect.postgres_access import Translation  # noqa: E402
from pydanube_connect.pure.failures import ConnectorFailed, Transient  # noqa: E402


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (psycopg.OperationalError("das Datenbanksystem startet"), Transient),
        (psycopg.InterfaceError("the connection is closed"), Transient),
        (errors.CannotConnectNow("starting up"), Transient),
        (errors.DeadlockDetected("deadlock"), Transient),
        (errors.ObjectInUse("the slot is active"), Transient),
        (errors.InvalidPassword("wrong"), ConnectorFailed),
        (errors.ObjectNotInPrerequisiteState("the slot is lost"), ConnectorFailed),
        (errors.UndefinedTable("no table"), ConnectorFailed),
        (psycopg.ProgrammingError("starting up"), ConnectorFailed),
    ],
)
def test_errors_are_temporary_by_code_or_connection(error, wanted):
    with pytest.raises(wanted, match="the database: "), Translation([]):
        raise error
