"""The checks of brokers, before Spark starts."""

from contextlib import contextmanager

import pytest

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube.model.errors import ConnectionLost, Unauthenticated
from pydanube_spark.pipelines.broker_checks import check_brokers
from pydanube_spark.pipelines.loading import load

PIPELINE = """\
name: p
broker: danube://here
sources:
  orders: {topics: [/default/orders, /default/parts], decode: true, DEAD}
  files: {files: in, format: text}
sinks:
  copies: {input: orders, topic: /default/copies, broker: danube://there}
  console: {input: orders, format: console}
"""


class Brokers:
    """Brokers by URL, with their topics or the error of a connection."""

    def __init__(self, **brokers):
        self.brokers = {f"danube://{name}": each for name, each in brokers.items()}
        self.open = []
        self.asked = []

    @contextmanager
    def connect(self, url):
        self.asked.append(url)
        found = self.brokers[url]
        if isinstance(found, Exception):
            raise found
        self.open.append(url)
        yield Client(found)
        self.open.remove(url)


class Client:
    def __init__(self, topics):
        self._topics = topics

    @property
    def topics(self):
        return self

    def list(self):
        return self._topics

    def partitions(self, topic):
        return [name for name in self._topics if name.startswith(topic)]


def problems(tmp_path, brokers, dead="read: stream"):
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE.replace("DEAD", dead))
    try:
        check_brokers(load(file), brokers.connect)
    except InvalidDeclaration as invalid:
        return {each.path: each.message for each in invalid.problems}
    finally:
        assert brokers.open == []
    return {}


def test_brokers_of_sources_and_sinks_are_asked(tmp_path):
    brokers = Brokers(here=["/default/orders", "/default/parts-part-0"], there=[])
    assert problems(tmp_path, brokers) == {}
    assert brokers.asked == ["danube://here", "danube://there"]


def test_each_broker_is_asked_once_for_all_parts(tmp_path):
    dead = "dead_letters: {topic: /default/dead}}\n  more: {topic: /default/orders"
    brokers = Brokers(here=["/default/orders", "/default/parts"], there=[])
    assert problems(tmp_path, brokers, dead) == {}
    lost = ConnectionLost("refused")
    silent = Brokers(here=lost, there=lost)
    assert problems(tmp_path, silent, dead).keys() == {
        "sources.orders",
        "sources.orders.dead_letters",
        "sources.more",
        "sinks.copies.broker",
    }
    assert brokers.asked == silent.asked == ["danube://here", "danube://there"]


def test_topics_with_several_partitions_cannot_have_truncations(tmp_path):
    feed = "cdc: debezium, schema: id INT, truncate: apply}"
    dead = "read: stream}\n  one: {topic: /default/parts, " + feed
    more = dead + "\n  two: {topic: /default/orders, " + feed.rstrip("}")
    orders = ["/default/orders-part-0", "/default/orders-part-1"]
    brokers = Brokers(here=[*orders, "/default/parts"], there=[])
    [(path, message)] = problems(tmp_path, brokers, more).items()
    assert path == "sources.two.truncate"
    assert message.startswith("/default/orders has 2 partitions, and a truncation in")


def test_broker_that_does_not_answer_is_named_where_the_file_names_it(tmp_path):
    lost = ConnectionLost("refused")
    dead = "dead_letters: {topic: /default/dead, broker: danube://dead}"
    found = problems(tmp_path, Brokers(here=lost, there=lost, dead=lost), dead)
    assert list(found) == [
        "sources.orders",
        "sources.orders.dead_letters.broker",
        "sinks.copies.broker",
    ]
    assert found["sources.orders"] == (
        "no broker answers at danube://here (refused); start it, or set another one "
        "with 'broker' in the file or the variable DANUBE_URL"
    )


@pytest.mark.parametrize(
    ("broker", "expected"),
    [
        (
            ["/default/order", "/default/parts"],
            {
                "sources.orders.topics": "there is no topic /default/orders at "
                "danube://here; did you mean '/default/order'? 'danube topics create "
                "/default/orders' creates it"
            },
        ),
        (
            Unauthenticated("no"),
            {"sources.orders": "the broker at danube://here says: no"},
        ),
    ],
)
def test_problems_of_a_source_are_those_of_its_broker(tmp_path, broker, expected):
    assert problems(tmp_path, Brokers(here=broker, there=[])) == expected
