"""An export, whatever happens to it."""

import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pydanube.model.errors import (
    Conflict,
    InvalidRequest,
    OffsetDropped,
    TopicNotFound,
)
from pydanube_spark.jobs import ThreadRunner
from pydanube_spark.tables.export.exporter import Exporter, ExportOptions
from pydanube_spark.tables.pure.table_options import UndecodablePolicy
from support.drivers.lake_tables import KINDS, data_files, read, table_in
from support.fakes.topic_directory import TopicDirectory

pytestmark = pytest.mark.slow

TOPIC = "/default/orders"


class Killed(BaseException):
    """As if the process was gone."""


class Table:
    """A table whose commit may be the last thing that happens."""

    def __init__(self, table):
        self.table = table
        self.dies = None

    def __getattr__(self, name):
        return getattr(self.table, name)

    def commit(self, *given, **named):
        if self.dies == "before the commit":
            raise Killed
        done = self.table.commit(*given, **named)
        if self.dies == "after the commit":
            raise Killed
        return done


def exporter(topics, table, runner=None, **options):
    return Exporter(
        ExportOptions(url="", topic=TOPIC, task_bytes_max=500, **options),
        table,
        runner or ThreadRunner(2),
        catalog=topics,
    )


@pytest.fixture
def topics(tmp_path):
    directory = TopicDirectory(tmp_path)
    directory.create(TOPIC)
    return directory


@pytest.fixture
def table(tmp_path):
    return table_in(tmp_path, "delta")


def test_one_warning_says_that_an_export_reads_through_the_broker(
    topics, table, caplog
):
    class ElsewhereTopics(TopicDirectory):
        """Topics whose segments are in a directory that this machine lacks."""

        def layout(self, topic, base, end):
            head, found = super().layout(topic, base, end)
            segments = tuple(
                replace(each, url="file:///elsewhere/segment")
                for each in found.segments
            )
            return head, replace(found, segments=segments)

    for _ in range(3):
        topics.publish(TOPIC, 40)
        topics.seal(TOPIC)
    report = exporter(ElsewhereTopics(topics.path), table).export_round()
    assert report.file_count > 1
    assert offsets(table) == list(range(120))
    warnings = [each for each in caplog.records if each.levelname == "WARNING"]
    assert [each.getMessage()[:37] for each in warnings] == [
        "segments are read through the broker,"
    ]


def offsets(table):
    return sorted(read(table).column("offset").to_pylist())


STEPS = st.lists(
    st.sampled_from(
        [
            "publish",
            "seal",
            "export",
            "before the write",
            "in the write",
            "before the commit",
            "after the commit",
        ]
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.parametrize("kind", KINDS)
@given(steps=STEPS, round_bytes_max=st.sampled_from([1, 2000, 1 << 30]))
def test_every_message_is_exported_once_after_any_failure(kind, steps, round_bytes_max):
    with tempfile.TemporaryDirectory() as name:
        topics = TopicDirectory(Path(name))
        topics.create(TOPIC)
        table = Table(table_in(Path(name), kind))
        count = 0

        class DyingRunner(ThreadRunner):
            def outcomes(self, jobs, work):
                def dying(job):
                    if table.dies == "before the write":
                        raise Killed
                    done = work(job)
                    if table.dies == "in the write":
                        raise Killed
                    return done

                return super().outcomes(jobs, dying)

        def one():
            return exporter(
                topics, table, DyingRunner(2), round_bytes_max=round_bytes_max
            )

        for step in steps:
            match step:
                case "publish":
                    topics.publish(TOPIC, 30)
                    count += 30
                case "seal":
                    topics.seal(TOPIC)
                case "export":
                    one().export_round()
                case _:
                    table.dies = step
                    with suppress(Killed):
                        one().export_round()
                    table.dies = None
        while not one().export_round().is_last:
            pass
        assert offsets(table.table) == list(range(count))


def test_tail_may_be_excluded(topics, table):
    topics.publish(TOPIC, 20)
    topics.seal(TOPIC)
    topics.publish(TOPIC, 5)
    exporter(topics, table, has_tail=False).export_round()
    assert offsets(table) == list(range(20))
    exporter(topics, table).export_round()
    assert offsets(table) == list(range(25))


def test_dropped_messages_fail_the_export_unless_skipped(topics, table):
    topics.publish(TOPIC, 20)
    exporter(topics, table).export_round()
    topics.publish(TOPIC, 20)
    topics.seal(TOPIC)
    topics.publish(TOPIC, 20)
    topics.seal(TOPIC)
    topics.drop_below(TOPIC, 40)
    with pytest.raises(OffsetDropped):
        exporter(topics, table).export_round()
    exporter(topics, table, may_skip=True).export_round()
    assert offsets(table) == [*range(20), *range(40, 60)]


def test_first_export_starts_with_the_oldest_message(topics, table):
    topics.publish(TOPIC, 20)
    topics.seal(TOPIC)
    topics.publish(TOPIC, 20)
    topics.seal(TOPIC)
    topics.drop_below(TOPIC, 20)
    exporter(topics, table).export_round()
    assert offsets(table) == list(range(20, 40))


def test_export_plan_changes_nothing(topics, table, tmp_path):
    topics.publish(TOPIC, 20)
    plan = exporter(topics, table).plan()
    assert plan.waiting_count == 20
    assert [(each.exported, each.end) for each in plan.topics] == [(None, 20)]
    assert "payload" in plan.new_columns
    assert table.schema() is None
    assert data_files(tmp_path) == []


def test_export_of_a_missing_topic_fails(topics, table):
    topics.delete(TOPIC)
    with pytest.raises(TopicNotFound):
        exporter(topics, table).plan()
    assert table.schema() is None


def test_repeated_conflicts_fail_the_export(topics, table):
    topics.publish(TOPIC, 20)

    class Busy(Table):
        def commit(self, *_, **__):
            raise Conflict("somebody was faster")

    with pytest.raises(Conflict, match="somebody was faster"):
        exporter(topics, Busy(table)).export_round()


def test_dead_letters_need_their_table(topics, table):
    with pytest.raises(InvalidRequest, match="dead-letter table"):
        exporter(topics, table, undecodable=UndecodablePolicy.DEAD_LETTER)
