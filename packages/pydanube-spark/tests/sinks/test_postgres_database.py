"""Tests of the translation of PostgreSQL's errors."""

import pytest

from pydanube.model.errors import InvalidRequest, Unavailable
from pydanube_spark.sinks.postgres_database import translate

URI = "postgresql://ada:sesame@host/db"
IO = 10


class DriverError(Exception):
    """An error as the driver raises it."""

    def __init__(self, said, status_code=3, sqlstate=None):
        super().__init__(said)
        self.status_code = status_code
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    "error",
    [
        DriverError("server closed the connection unexpectedly", IO),
        DriverError("FATAL:  the database system is starting up", IO),
        DriverError("FATAL:  the database system is not yet accepting connections", IO),
        DriverError("FATAL:  das Datenbanksystem startet", IO),
        DriverError("deadlock detected", sqlstate="40P01"),
        DriverError("terminating connection", sqlstate="57P01"),
        DriverError("out of shared memory", sqlstate="53200"),
    ],
)
def test_transient_errors_are_unavailable(error):
    assert type(translate(error, URI)) is Unavailable


@pytest.mark.parametrize(
    "error",
    [
        DriverError("value too long", IO, "22001"),
        DriverError("the word 'in recovery' proves nothing", sqlstate="42601"),
        DriverError("permission denied", sqlstate="42501"),
    ],
)
def test_permanent_errors_are_not_retried(error):
    assert type(translate(error, URI)) is InvalidRequest


def test_errors_hide_secrets_and_statements():
    error = DriverError(f'invalid "{URI}"\n\nQuery was: SELECT 1')
    assert str(translate(error, URI)) == 'PostgreSQL: invalid "***"'
