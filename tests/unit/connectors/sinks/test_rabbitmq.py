"""The options of the sink are checked."""

import pytest

from pydanube.connectors.sinks.rabbitmq import RabbitmqSink, RabbitmqSinkOptions


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ({"routing_key": "a"}, set()),
        ({"routing_key": ""}, {"routing_key"}),
        ({"routing_key": "", "exchange": "fanout"}, set()),
        ({"routing_key": "a", "url": "http://a"}, {"url"}),
    ],
)
def test_options(options, problems):
    assert RabbitmqSink.problems(RabbitmqSinkOptions(**options)).keys() == problems
