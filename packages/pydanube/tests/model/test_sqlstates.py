"""Tests of what PostgreSQL's error codes mean for a retry."""

import pytest

from pydanube.model.sqlstates import is_temporary

TEMPORARY = ["08006", "40001", "40P01", "53300", "55006", "55P03", "57014", "57P03"]
PERMANENT = ["22001", "23505", "28P01", "42501", "42P01", "55000", "57P04", "XX000"]


@pytest.mark.parametrize("state", TEMPORARY)
def test_code_of_a_busy_or_stopped_server_is_temporary(state):
    assert is_temporary(state, is_disconnected=False)


@pytest.mark.parametrize("state", PERMANENT)
def test_code_of_a_mistake_is_permanent_whatever_the_connection(state):
    assert not is_temporary(state, is_disconnected=True)


@pytest.mark.parametrize("state", [None, ""])
def test_error_without_a_code_is_temporary_if_the_connection_is_lost(state):
    assert is_temporary(state, is_disconnected=True)
    assert not is_temporary(state, is_disconnected=False)
