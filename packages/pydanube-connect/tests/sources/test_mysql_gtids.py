"""Sets of transactions grow, and are written as the server reads them."""

import pytest

pytest.importorskip("pymysqlreplication")

from pydanube_connect.sources.mysql_gtids import gtids_of

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "57f8b1ac-0b8e-11ef-9262-0242ac120002"


def test_mariadb_keeps_the_last_transaction_of_each_domain():
    found = gtids_of("0-1-17,2-1-5", is_mariadb=True)
    found.add("0-3-18")
    found.add("7-1-1")
    assert str(found) == "0-3-18,2-1-5,7-1-1"


def test_mariadb_begins_without_transactions():
    found = gtids_of("", is_mariadb=True)
    assert str(found) == ""
    found.add("0-1-1")
    assert str(found) == "0-1-1"


def test_mysql_keeps_intervals_of_each_server():
    found = gtids_of(f"{SERVER}:1-3", is_mariadb=False)
    for each in (4, 6):
        found.add(f"{SERVER}:{each}")
    found.add(f"{OTHER}:1")
    assert set(str(found).split(",")) == {f"{SERVER}:1-4:6", f"{OTHER}:1"}
    # The server separates them with line breaks.
    again = gtids_of(str(found).replace(",", ",\n"), is_mariadb=False)
    again.add(f"{SERVER}:5")
    assert f"{SERVER}:1-6" in str(again)
