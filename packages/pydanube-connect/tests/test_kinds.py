"""Tests of the kinds of connectors and their options."""

import pytest

from pydanube.declarations.functions import NoSuchFunction
from pydanube.model.errors import InvalidConfig
from pydanube_connect.connector import Sink, Source
from pydanube_connect.kinds import KINDS, find_kind, options_of, summary_of
from pydanube_connect.sinks.spark import SparkSink


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_and_option_has_a_description(name, tmp_path):
    kind = find_kind(name, tmp_path)
    assert issubclass(kind, Source | Sink | SparkSink)
    assert summary_of(kind).endswith(".")
    for option in options_of(kind):
        assert option.help.endswith("."), option.name
        assert option.type


def test_options_have_their_types_and_defaults(tmp_path):
    options = {
        each.name: each for each in options_of(find_kind("mqtt-source", tmp_path))
    }
    assert options["client_id"].default == ""
    assert (options["port"].type, options["port"].default) == ("number", "1883")
    assert (options["version"].type, options["version"].default) == ("3.1.1 or 5", "5")
    assert (options["tls"].type, options["tls"].default) == ("true or false", "false")
    assert options["username"].default == "none"
    assert options["filters"].type == "names with values"


def test_unknown_kind_is_refused_with_a_suggestion(tmp_path):
    with pytest.raises(InvalidConfig, match="did you mean 'webhook-source'"):
        find_kind("webhook-sorce", tmp_path)
    with pytest.raises(InvalidConfig, match="known are mqtt-sink, mqtt-source"):
        find_kind("mqtt", tmp_path)


@pytest.mark.parametrize("name", KINDS)
def test_kind_is_named_after_the_system_and_whether_it_is_a_source_or_a_sink(
    name, tmp_path
):
    system, _, part = name.rpartition("-")
    assert system
    assert part == (
        "source" if issubclass(find_kind(name, tmp_path), Source) else "sink"
    )


def test_kind_may_be_a_class_in_a_file(tmp_path):
    (tmp_path / "own.py").write_text(
        "from pydanube_connect import Source\n"
        "class Ticks(Source):\n    async def batches(self, position):\n        yield\n"
        "def f(): ...\n"
    )
    assert find_kind("own.py:Ticks", tmp_path).__name__ == "Ticks"
    with pytest.raises(InvalidConfig, match="neither"):
        find_kind("own.py:f", tmp_path)
    with pytest.raises(NoSuchFunction, match="did you mean 'Ticks'"):
        find_kind("own.py:Tick", tmp_path)
