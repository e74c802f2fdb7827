"""The options of the source of a PostgreSQL database's changes are checked."""

import pytest

from pydanube.connectors.sources.postgres import PostgresSource
from pydanube.connectors.sources.postgres_options import PostgresOptions

VALID = {"url": "postgresql://localhost/shop", "tables": {"public.orders": None}}


def test_valid_options_have_no_problems():
    assert PostgresSource.problems(PostgresOptions(**VALID)) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"url": " "},
        {"tables": {}},
        {"slot": "Upper"},
        {"slot": "s" * 64},
        {"publication": ""},
    ],
)
def test_malformed_options_are_reported(change):
    [name] = change
    options = PostgresOptions(**{**VALID, **change})
    assert list(PostgresSource.problems(options)) == [name]
