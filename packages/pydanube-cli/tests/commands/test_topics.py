"""Topics and their partitions in tables."""

from dataclasses import replace

from pydanube.model.json_values import to_json_value
from pydanube_cli.commands import topics as cli
from pydanube_cli.commands.subscriptions import COLUMNS
from pydanube_cli.presentation.output import Table, show
from support.fakes.descriptions import SUBSCRIPTION, TOPIC

PARTS = [replace(TOPIC, topic=f"/default/p-part-{n}") for n in range(3)]


def test_partitions_of_a_topic_are_one_row():
    served = [
        replace(each, broker_id=broker)
        for each, broker in zip([PARTS[0], TOPIC, *PARTS[1:]], "abbb", strict=True)
    ]
    rows = [cli._row(group) for group in cli._by_topic(served)]
    assert rows == [
        ("/default/p", "reliable, 3 partitions", 30, "300 B", 1, 15, "", "a: 1, b: 2"),
        ("/default/t", "reliable", 10, "100 B", 1, 5, "", "b"),
    ]


def test_blocked_subscriptions_are_named_in_the_listing():
    blocked = replace(SUBSCRIPTION, subscription="billing", blocked=((3, 4),))
    stopped = replace(PARTS[1], subscriptions=(SUBSCRIPTION, blocked))
    [group] = cli._by_topic([PARTS[0], stopped, PARTS[2]])
    assert cli._row(group)[-2] == "billing"


def test_blocking_offsets_are_listed_with_a_subscription(capsys):
    blocked = replace(SUBSCRIPTION, blocked=((3, 4), (6, 9)))
    show(Table.of([blocked], COLUMNS))
    shown = capsys.readouterr().out
    assert "Blocked by" in shown
    assert "3, 6\u20138" in shown


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
