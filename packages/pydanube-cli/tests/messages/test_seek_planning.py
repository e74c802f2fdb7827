"""A planned seek counts the messages that it would repeat or skip."""

from dataclasses import replace

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_cli.messages.seek_planning import plan_seek
from support.fakes.brokers import NON_RELIABLE
from support.fakes.descriptions import SUBSCRIPTION, TOPIC

STORED = replace(TOPIC, base_offset=10, end_offset=100)
READ = replace(SUBSCRIPTION, cursor=40, done=((50, 55), (90, 100)))


@pytest.mark.parametrize(
    ("position", "delivered_again", "skipped"),
    [
        (40, 15, 0),
        (30, 25, 0),
        (45, 15, 5),
        (52, 13, 10),
        (60, 10, 15),
        (100, 0, 45),
    ],
)
def test_messages_are_counted(position, delivered_again, skipped):
    plan = plan_seek(STORED, READ, position)
    assert (plan.cursor, plan.position) == (40, position)
    assert (plan.delivered_again, plan.skipped) == (delivered_again, skipped)


def test_dropped_messages_are_not_delivered_again():
    plan = plan_seek(STORED, READ, 0)
    assert (plan.position, plan.delivered_again) == (10, 45)


def test_seeks_that_the_broker_refuses_are_refused():
    with pytest.raises(InvalidRequest, match="offset 101 is beyond the end"):
        plan_seek(STORED, READ, 101)
    with pytest.raises(InvalidRequest, match="no cursors"):
        plan_seek(replace(STORED, policy=NON_RELIABLE), READ, 40)
