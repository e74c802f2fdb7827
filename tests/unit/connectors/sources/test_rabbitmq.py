"""The options of the source are checked."""

import pytest

from pydanube.connectors.sources.rabbitmq import RabbitmqOptions, RabbitmqSource


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ({"queues": {"a": None}}, set()),
        ({"queues": {}}, {"queues"}),
        ({"queues": {"a": "no topic"}}, {"queues"}),
        ({"queues": {"a": None}, "prefetch": 0}, {"prefetch"}),
        ({"queues": {"a": None}, "url": "http://a"}, {"url"}),
    ],
)
def test_options(options, problems):
    assert RabbitmqSource.problems(RabbitmqOptions(**options)).keys() == problems
