"""The fixtures for users' tests."""

import tomllib
from importlib.machinery import SourceFileLoader

import pytest

from pydanube_broker import pytest_plugin, testing
from support.project import ROOT

pytest_plugins = ["pytester"]

pytestmark = pytest.mark.slow

TESTS = """
    import asyncio
    import pydanube
    import pytest
    from pydanube import sync

    TOPIC = "/default/orders"

    def publish():
        # As a program does, which knows nothing of the test.
        with sync.connect() as client, client.producer(TOPIC) as producer:
            producer.send(b"hello")

    async def payloads(url):
        async with pydanube.connect(url) as client:
            return [p async for batch in client.read(TOPIC) for p in batch.payloads]

    def test_code_under_test_is_redirected(danube_redirected, danube_client):
        publish()
        assert danube_client.topics.list() == [TOPIC]
        assert asyncio.run(payloads(danube_redirected.url)) == [b"hello"]

    def test_broker_is_empty(danube_client):
        assert danube_client.topics.list() == []

    def test_clock_is_set_forward(danube_broker, danube_client):
        with (
            danube_client.producer(TOPIC) as producer,
            danube_client.consumer(TOPIC, subscription="s") as consumer,
        ):
            producer.send(b"tomorrow", deliver_after_s=86400)
            danube_broker.advance(seconds=86400)
            assert consumer.receive(timeout_s=60).payload == b"tomorrow"

    class TestWithOptions:
        @pytest.fixture
        def danube_broker_options(self):
            return {"auto_create_topics": False}

        def test_options_are_used(self, danube_client):
            with pytest.raises(pydanube.TopicNotFound):
                with danube_client.producer(TOPIC):
                    pass
"""


@pytest.fixture
def inner(pytester, monkeypatch):
    """Return pytester with our plugin, and no others, also if it is installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini(f"[pytest]\naddopts = -p {pytest_plugin.__name__}")
    return pytester


def test_fixtures_give_each_test_a_broker(inner):
    inner.makepyfile(TESTS)
    inner.runpytest_inprocess().assert_outcomes(passed=4)


def test_fixtures_are_described(inner):
    listed = inner.runpytest_inprocess("--fixtures", "-q").stdout
    listed.fnmatch_lines(
        [
            "danube_broker_options -- *",
            "danube_broker -- *",
            "danube_client -- *",
            "danube_redirected -- *",
        ]
    )


def test_plugin_imports_no_broker_before_a_test_needs_one(inner):
    inner.makepyfile(
        """
        import sys

        def test_nothing_is_imported():
            assert "pydanube_broker.pytest_plugin" in sys.modules
            assert "pydanube_broker.testing" not in sys.modules
            assert "pyarrow" not in sys.modules
        """
    )
    inner.runpytest_subprocess().assert_outcomes(passed=1)


def test_pytest_finds_the_plugin():
    project = tomllib.loads(
        (ROOT / "packages/pydanube-broker/pyproject.toml").read_text()
    )["project"]
    assert project["entry-points"]["pytest11"] == {"pydanube": pytest_plugin.__name__}


def test_the_assertions_of_pydanube_are_not_rewritten_when_its_own_tests_run():
    assert isinstance(testing.__loader__, SourceFileLoader)
