"""Topics and their partitions in tables."""

from dataclasses import replace

from pydanube.cli.commands import topics as cli
from pydanube.cli.output import show, to_json_value
from pydanube.model.descriptions import SubscriptionDescription, TopicDescription
from pydanube.model.policy import SubscriptionType, TopicPolicy

SUBSCRIPTION = SubscriptionDescription(
    subscription="s",
    type=SubscriptionType.SHARED,
    cursor=0,
    done=(),
    backlog=5,
    in_flight=0,
    consumers=(),
)
TOPIC = TopicDescription(
    topic="/default/t",
    topic_id=1,
    policy=TopicPolicy(),
    epoch=1,
    base_offset=0,
    end_offset=10,
    sealed_offset=0,
    tail_bytes=100,
    segment_bytes=0,
    segment_count=0,
    producers=(),
    subscriptions=(SUBSCRIPTION,),
    dropped=0,
    message_count=10,
)
PARTS = [replace(TOPIC, topic=f"/default/p-part-{n}") for n in range(3)]


def test_partitions_of_a_topic_are_one_row():
    rows = [cli._row(group) for group in cli._by_topic([PARTS[0], TOPIC, *PARTS[1:]])]
    assert rows == [
        ("/default/p", "reliable, 3 partitions", 30, "300 B", 1, 15),
        ("/default/t", "reliable", 10, "100 B", 1, 5),
    ]


def test_partitioned_topic_is_described_by_partition(capsys):
    show(*cli._partitions_shown("/default/p", PARTS))
    said = capsys.readouterr().out
    assert "Partitions  3" in said
    assert "Messages    30" in said
    assert "/default/p-part-2" in said


def test_json_of_a_topic_is_the_topic_and_of_partitions_a_list():
    assert cli._json_of("/default/t", [TOPIC], {}) == to_json_value(TOPIC)
    assert cli._json_of("/default/p", PARTS, {}) == {
        "topic": "/default/p",
        "partitions": to_json_value(PARTS),
    }
