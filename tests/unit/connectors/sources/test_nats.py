"""The options of the source are checked."""

import pytest

from pydanube.connectors.sources.nats import NatsOptions, NatsSource


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ({"stream": "ORDERS"}, set()),
        ({"stream": "a.b"}, {"stream"}),
        ({"stream": "A", "servers": " "}, {"servers"}),
        ({"stream": "A", "key_file": "/none"}, {"key_file"}),
    ],
)
def test_options(options, problems):
    assert NatsSource.problems(NatsOptions(**options)).keys() == problems
