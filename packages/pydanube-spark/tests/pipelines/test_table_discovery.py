"""The tables of mirrors that brokers have topics of."""

from contextlib import contextmanager

import pytest

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube.model.errors import ConnectionLost, PermissionDenied
from pydanube.security.policy import Decision
from pydanube_spark.pipelines.broker_checks import NoBrokerAnswers
from pydanube_spark.pipelines.loading import load
from pydanube_spark.pipelines.state import StateDirectory
from pydanube_spark.pipelines.table_discovery import (
    DiscoveredTables,
    discover_tables,
    remember_tables,
)

PIPELINE = """\
name: p
broker: danube://here
mirrors:
  shop:
    topic: /shop/{table}
    tables: {"*": {key: id}}
    tables_max: 2
    format: danube-delta
    path: lake/{table}
"""


def discovered(tmp_path, *topics, error=None, text=PIPELINE, forbidden=()):
    file = tmp_path / "p.yaml"
    file.write_text(text)
    asked = []

    class Topics:
        def list(self, namespace):
            asked.append(namespace)
            return [each for each in topics if each.startswith(f"/{namespace}/")]

    class Security:
        def check_access(self, permission, resource):
            rule = f"no binding grants {permission} on {resource}"
            return Decision(resource not in forbidden, rule)

    class Client:
        topics, security = Topics(), Security()

    @contextmanager
    def connect(url):
        assert url == "danube://here"
        if error is not None:
            raise error
        yield Client()

    found = discover_tables(load(file), connect)
    assert asked == ["shop"]
    return found


def test_tables_are_those_that_have_topics(tmp_path):
    found = discovered(tmp_path, "/shop/b", "/shop/a-part-0", "/default/c")
    assert found.tables == {"shop": ["a", "b"]}


@pytest.mark.parametrize(
    ("topics", "words"),
    [
        (["/default/a"], "no topic at danube://here is /shop/{table} with a table of"),
        (["/shop/a", "/shop/b", "/shop/c"], "3 tables have these names, and"),
    ],
)
def test_a_mirror_has_some_tables_and_not_too_many(tmp_path, topics, words):
    with pytest.raises(InvalidDeclaration) as caught:
        discovered(tmp_path, *topics)
    [problem] = caught.value.problems
    assert problem.path == "mirrors.shop.tables"
    assert words in problem.message


def test_a_mirror_with_other_tables_needs_no_topic_for_its_patterns(tmp_path):
    more = "    exclude: [a]\n"
    text = PIPELINE.replace('{"*": {', '{b: {key: id}, "*": {')
    assert discovered(tmp_path, "/shop/a", "/shop/b", text=text + more).tables == {
        "shop": []
    }


def test_tables_that_may_not_be_seen_any_more_are_told_from_those_that_are_gone(
    tmp_path,
):
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE)
    state = load(file).state
    state.path.mkdir(parents=True)
    remember_tables(state, DiscoveredTables({"shop": ["a", "b"]}))
    b = ["/shop/b"]
    found = discovered(tmp_path, "/shop/c", forbidden=b)
    lacks = "no binding grants describe on /shop/b"
    assert found.hidden == {"shop": {"b": lacks}}
    _, gone, hidden = remember_tables(state, found)
    assert gone.endswith("of these tables any more, which stay as they are: a")
    assert hidden.endswith(f"any more, which stay as they are: b ({lacks})")
    # If none is left, the error of the run says so.
    remember_tables(state, DiscoveredTables({"shop": ["b"]}))
    with pytest.raises(InvalidDeclaration, match=f"or none that may be seen: {lacks}"):
        discovered(tmp_path, forbidden=b)


def test_a_first_run_says_which_permission_may_be_missing(tmp_path):
    with pytest.raises(InvalidDeclaration, match="seen: no binding grants describe on"):
        discovered(tmp_path, forbidden=["/shop/t"])


def test_a_run_remembers_the_tables_and_says_what_has_changed(tmp_path):
    state = StateDirectory(tmp_path)
    assert remember_tables(state, DiscoveredTables({"shop": ["a", "b"]})) == [
        "shop has new tables: a, b",
    ]
    assert remember_tables(state, DiscoveredTables({"shop": ["a", "b"]})) == []
    [new, gone] = remember_tables(state, DiscoveredTables({"shop": ["b", "c"]}))
    assert new == "shop has new tables: c"
    assert gone.endswith("which stay as they are: a")
    assert state.read_mirrored_tables() == {"shop": ["b", "c"]}


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ConnectionLost("refused"), NoBrokerAnswers, "no broker answers at"),
        (PermissionDenied("no"), InvalidDeclaration, "danube://here says: no"),
    ],
)
def test_failures_of_brokers_are_reported(tmp_path, error, kind, words):
    with pytest.raises(InvalidDeclaration, match=words) as caught:
        discovered(tmp_path, error=error)
    assert type(caught.value) is kind
