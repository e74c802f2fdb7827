"""The options of the sink are checked."""

import pytest

from pydanube.connectors.sinks.nats import NatsSink, NatsSinkOptions


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ({"subject": "a.{key}"}, set()),
        ({"subject": ""}, {"subject"}),
        ({"subject": "a..b"}, {"subject"}),
        ({"subject": "a.*"}, {"subject"}),
        ({"subject": "a", "servers": ""}, {"servers"}),
    ],
)
def test_options(options, problems):
    assert NatsSink.problems(NatsSinkOptions(**options)).keys() == problems
