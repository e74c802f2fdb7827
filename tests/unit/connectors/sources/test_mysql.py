"""The options of the source of MySQL's changes are checked."""

import pytest

from pydanube.connectors.sources.mysql import MysqlSource
from pydanube.connectors.sources.mysql_options import MysqlOptions


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ({"tables": {"shop.orders": None}}, set()),
        ({"tables": {}}, {"tables"}),
        ({"tables": {"orders": None}}, {"tables"}),
        ({"tables": {"*": "no name"}}, {"tables"}),
        ({"tables": {"*": None}, "port": 0}, {"port"}),
        ({"tables": {"*": None}, "server_id": 2**32}, {"server_id"}),
        ({"tables": {"*": None}, "ca_file": "/none"}, {"ca_file"}),
    ],
)
def test_options(options, problems):
    assert MysqlSource.problems(MysqlOptions(**options)).keys() == problems
