"""Help fits 80 columns, and continues long examples as a shell allows."""

import shlex

import pytest

from pydanube_cli.main import all_commands, load
from pydanube_cli.presentation.help_pages import help_page


def pages(command, path):
    yield help_page(command, path, command.params, 80)
    for name, each in getattr(command, "commands", {}).items():
        yield from pages(each, f"{path} {name}")


@pytest.mark.parametrize("name", all_commands())
def test_help_of_every_command_fits_80_columns(name):
    for page in pages(load(name), f"danube {name}"):
        long = [line for line in page.splitlines() if len(line) > 80]
        # The usage is one line, and so are choices; neither has spaces to break at.
        assert not [line for line in long if "|" not in line and "Usage" not in line]


def test_option_has_its_names_its_value_and_its_default():
    command = load("topics").commands["create"]
    page = help_page(command, "danube topics create", command.params, 80)
    assert page.startswith("Usage: danube topics create [OPTIONS] TOPIC\n\nCreate a ")
    assert (
        "  --on-corruption stop|skip\n"
        "      The reaction of subscriptions to a segment that cannot be read: stop "
        "with\n      an error, or skip its messages. [default: stop]\n"
    ) in page
    assert "  --reliable, --non-reliable\n" in page
    assert "for example /default/orders. [required]\n" in page


def test_subcommands_are_listed_with_their_first_sentence():
    page = help_page(load("topics"), "danube topics", [], 80)
    assert "  create           Create a topic.\n" in page


def test_long_example_can_be_pasted_into_a_shell():
    command = load("topics").commands["hold"]
    page = help_page(command, "danube topics hold", [], 60)
    _, example = page.split("Examples:\n  $ ")
    assert " \\\n" in example
    assert shlex.split(example.replace("\\\n", ""))[:4] == [
        *("danube", "topics", "hold", "/default/orders"),
    ]
