"""Which topics have changed since a revision."""

from hypothesis import given
from hypothesis import strategies as st

from pydanube_broker.storage.pure.offset_changes import OffsetChanges

TOPICS_MAX = 3


@given(st.lists(st.sampled_from("abcde") | st.none(), max_size=30))
def test_changes_since_a_revision_are_all_or_unknown(changed):
    changes, history = OffsetChanges(TOPICS_MAX), []
    revisions = [(changes.revision, 0)]
    for topic in changed:
        if topic is None:
            changes.forget()
            history, revisions = [], [(changes.revision, 0)]
            continue
        changes.note(topic)
        history.append(topic)
        revisions.append((changes.revision, len(history)))
    for revision, known in revisions:
        expected = set(history[known:])
        found = changes.since(revision, 10)
        assert found is None or (set(found) == expected and len(found) == len(expected))
        # They are known unless more topics have changed than are kept.
        assert (found is not None) or len(set(history)) > TOPICS_MAX
    assert changes.since(changes.revision, 0) == []
    assert changes.since(changes.revision + 1, 10) is None


def test_more_changes_than_are_wanted_are_not_returned():
    changes = OffsetChanges()
    for topic in "abc":
        changes.note(topic)
    assert changes.since(0, 2) is None
    assert changes.since(1, 2) == ["c", "b"]


def test_forgotten_changes_are_unknown():
    changes = OffsetChanges()
    changes.note("a")
    known = changes.revision
    changes.forget()
    assert changes.since(known, 10) is None
    assert changes.since(changes.revision, 10) == []
