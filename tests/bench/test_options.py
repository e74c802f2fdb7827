"""Tests of the command-line options."""

import pytest

from bench.options import parser_of_command
from bench.systems import NAMES
from pydanube_cli.bench.figures import Durability


def parse(*words):
    return parser_of_command().parse_args(words)


def test_default_options_select_everything():
    asked = parse()

    assert asked.systems == list(NAMES)
    assert asked.workloads is None
    assert asked.durability == [*Durability]
    assert asked.sizes is None


def test_lists_are_comma_separated():
    asked = parse("--systems", "danube,nats", "--sizes", "16,1024")
    assert asked.systems == ["danube", "nats"]
    assert asked.sizes == [16, 1024]

    asked = parse("--durability", "synced,page-cache")
    assert asked.durability == [Durability.SYNCED, Durability.PAGE_CACHE]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--systems", "danube,pulsar"), "there is no 'pulsar'; choose from danube"),
        (("--workloads", "all"), "there is no 'all'; choose from publish"),
        (("--durability", "fsync"), "there is no 'fsync'; choose from memory"),
        (("--sizes", "8"), "at least 16 bytes"),
    ],
)
def test_unknown_names_are_refused(words, said, capsys):
    with pytest.raises(SystemExit):
        parse(*words)

    assert said in capsys.readouterr().err
