"""Outcomes of an import are listed, failures first."""

from pydanube_cli.administration.definitions.importing import Action, Outcome
from pydanube_console.pages.definitions import SHOWN, render_outcomes


def outcome(action, name="/a/b"):
    return Outcome(kind="topic", name=name, action=action, detail="<b>")


def test_failures_come_first_and_the_unchanged_are_left_out():
    found = [outcome(each, each.value) for each in Action]
    shown = render_outcomes(found, dry_run=True)
    assert shown.index("failed</span>") < shown.index("created</span>")
    assert '<td class="">unchanged</td>' not in shown
    assert "<b>" not in shown
    assert "this is a dry run" in shown


def test_long_lists_are_cut_and_say_so():
    shown = render_outcomes([outcome(Action.CREATED)] * (SHOWN + 1), dry_run=False)
    assert shown.count("<tr>") == SHOWN + 1
    assert f"The first {SHOWN} are shown." in shown
