"""The last line says what an import did."""

from pydanube_cli.administration.definitions.importing import Action, Outcome
from pydanube_cli.commands.import_ import summary


def outcome(action):
    return Outcome(kind="topic", name="/a/b", action=action)


def test_outcomes_are_counted():
    found = [outcome(Action.CREATED), outcome(Action.FAILED), outcome(Action.CREATED)]
    assert summary(found, dry_run=False) == "2 created, 1 failed."
    assert summary(found, dry_run=True).startswith("2 created, 1 failed; nothing has")
    assert summary([], dry_run=False) == "The file names nothing."
