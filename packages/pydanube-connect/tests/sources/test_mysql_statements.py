"""Statements of the log of MySQL are recognised."""

import pytest

from pydanube_connect.sources.pure.mysql_statements import (
    ends_transaction,
    truncated_table,
)


@pytest.mark.parametrize(
    ("statement", "table"),
    [
        ("TRUNCATE TABLE orders", ("shop", "orders")),
        ("truncate orders", ("shop", "orders")),
        ("TRUNCATE`orders`", ("shop", "orders")),
        ("TRUNCATE TABLE old . orders", ("old", "orders")),
        ("TRUNCATE `a``b`.`c.d` NOWAIT", ("a`b", "c.d")),
        ('truncate table "a ""b"""', ("shop", 'a "b"')),
        ("/* by\n a job */ TRUNCATE/**/TABLE -- all\n straße", ("shop", "straße")),
        ("# all\ntruncate table table_1", ("shop", "table_1")),
        ("--\nTRUNCATE orders", ("shop", "orders")),
        ("/***/ TRUNCATE orders; -- all", ("shop", "orders")),
        ("TRUNCATE table$1", ("shop", "table$1")),
        ("TRUNCATE in_€", ("shop", "in_€")),
    ],
)
def test_the_table_that_is_truncated_is_found(statement, table):
    assert truncated_table(statement, "shop") == table


@pytest.mark.parametrize(
    "statement",
    [
        "BEGIN",
        "TRUNCATED t",
        "DROP TABLE truncate_me",
        "-- TRUNCATE orders",
        "ALTER TABLE orders TRUNCATE PARTITION p",
        "TRUNCATE",
        # The text of a comment or of a name is no statement.
        "/* a */ CREATE TABLE t (a int) COMMENT '*/ TRUNCATE orders'",
        "/* a */ CREATE TABLE `*/ TRUNCATE orders` (a int)",
        # A name in another character set.
        "TRUNCATE orders\\xe9",
        "/**/" * 5_000 + "-- a\n" * 5_000 + "BEGIN",
    ],
)
def test_other_statements_truncate_no_table(statement):
    assert truncated_table(statement, "shop") is None


@pytest.mark.parametrize(
    ("statement", "ends"),
    [
        ("COMMIT", True),
        ("ALTER TABLE t ADD x int", True),
        ("TRUNCATE t", True),
        ("BEGIN", False),
        ("SAVEPOINT a", False),
        ("ROLLBACK TO a", False),
        ("XA START 'a'", False),
    ],
)
def test_statements_end_transactions_or_are_parts_of_one(statement, ends):
    assert ends_transaction(statement) is ends
