"""Tests of finding the tables of a query."""

import pytest

from pydanube_spark.pipelines.sql_tables import tables_in

KNOWN = ("orders", "customers", "parts")


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT * FROM orders", ["orders"]),
        ("select * from `Orders` o", ["orders"]),
        ("SELECT o.* FROM (SELECT 1 FROM orders) o", ["orders"]),
        ("SELECT * FROM orders JOIN customers USING (id)", ["orders", "customers"]),
        ("SELECT * FROM orders AS o, customers c, parts", list(KNOWN)),
        (
            "SELECT * FROM orders WHERE id IN (SELECT id FROM parts)",
            ["orders", "parts"],
        ),
        ("WITH x AS (SELECT * FROM parts) SELECT * FROM x", ["parts"]),
        ("SELECT 1 FROM other -- FROM orders\n", []),
        ("SELECT ' FROM orders', \"FROM parts\" /* FROM orders */ FROM other", []),
        ("SELECT * FROM other WHERE a = orders AND b IN (1, parts)", []),
        ("SELECT a FROM other GROUP BY a, orders", []),
        ("SELECT * FROM (SELECT a FROM other), parts", ["parts"]),
        ("SELECT * FROM other, LATERAL explode(a) ORDER BY b, orders", []),
        ("SELECT a FROM orders UNION ALL SELECT a FROM parts", ["orders", "parts"]),
        ("FROM orders SELECT a, customers", ["orders"]),
        ("TABLE orders", ["orders"]),
    ],
)
def test_tables_of_a_query_are_those_after_from_and_join(sql, found):
    assert tables_in(sql, KNOWN) == found
