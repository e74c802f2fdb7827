"""Tests of the lag of a pipeline at the broker."""

import pytest

from pydanube.model.errors import ConnectionLost
from pydanube_spark.pipelines.loading import load
from pydanube_spark.pipelines.progress_reporting import (
    ProgressReporter,
    slowest_positions,
)
from pydanube_spark.pipelines.pure.progress import QueryProgress, QueryState

A, B = "/default/a", "/default/b"


def query(has_reported=True, state=QueryState.RUNNING, **positions):
    return QueryProgress(
        name="q",
        writes_to="w",
        state=state,
        has_reported=has_reported,
        positions={f"/default/{name}": offset for name, offset in positions.items()},
    )


def test_the_slowest_query_of_a_topic_counts():
    found = slowest_positions([query(a=5, b=3), query(a=4), query()])
    assert found == {A: 4, B: 3}


def test_nothing_is_reported_until_all_queries_have_a_position():
    silent = query(has_reported=False)
    assert slowest_positions([query(a=5), silent]) == {}
    # It had nothing to read.
    silent.state = QueryState.DONE
    assert slowest_positions([query(a=5), silent]) == {A: 5}


def pipeline(tmp_path, url, sources, more=""):
    path = tmp_path / "p.yaml"
    path.write_text(
        f"name: p\nbroker: {url}\nsources: {sources}\n"
        f"sinks: {{o: {{input: s, format: noop}}}}\n{more}"
    )
    return load(path)


def create(client):
    for topic in (A, B):
        client.topics.create(topic, reliable=True)
        with client.producer(topic, reliable=True) as producer:
            producer.send_batch([b"x"] * 5)


def test_the_broker_shows_the_last_positions(tmp_path, danube_broker, danube_client):
    create(danube_client)
    sources = "{s: {topics: [/default/a]}, t: {topic: /default/b}}"
    found = pipeline(tmp_path, "danube://unused:1", sources)
    with ProgressReporter(found, connect=lambda _: danube_broker.connect()) as reporter:
        reporter.update({})
        reporter.update({A: 2, B: 1})
        reporter.update({A: 3, B: 5})
    backlogs = [
        danube_client.subscriptions.describe(topic, "pipeline-p").backlog
        for topic in (A, B)
    ]
    assert backlogs == [2, 0]


@pytest.mark.parametrize(
    ("source", "more"),
    [
        ("{topic: /default/a, options: {subscription: own}}", ""),
        ("{topic: /default/a}", "report_progress: false"),
    ],
)
def test_an_own_subscription_or_the_setting_turns_it_off(
    tmp_path, danube_broker, danube_client, source, more
):
    create(danube_client)
    found = pipeline(tmp_path, "danube://unused:1", f"{{s: {source}}}", more)
    with ProgressReporter(found, connect=lambda _: danube_broker.connect()) as reporter:
        reporter.update({A: 3})
    assert danube_client.topics.describe(A).subscriptions == ()


def test_a_broker_that_does_not_answer_is_mentioned_once(tmp_path, caplog):
    attempts = []

    def connect(url):
        attempts.append(url)
        raise ConnectionLost("gone")

    found = pipeline(tmp_path, "danube://127.0.0.1:1", "{s: {topic: /default/a}}")
    with ProgressReporter(found, connect=connect, interval_s=0.0) as reporter:
        for offset in range(1, 4):
            reporter.update({A: offset})
            while len(attempts) < offset:
                pass
    assert [each.getMessage() for each in caplog.records] == [
        f"{A}: the broker does not show the lag of this pipeline: gone"
    ]
