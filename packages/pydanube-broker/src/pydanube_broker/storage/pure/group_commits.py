"""
The protocol of the object journal: which groups are committed, and how one is fenced.

Each session of a broker writes its groups as objects with numbers 1, 2, 3, … below a
prefix of its own.  Several puts are in flight.  The outcome of a put may be unknown,
and then it may still happen at any later time.

Rules of the session, in GroupCommits:

1. It puts every object only if it is absent, and uses every number for one group.
2. It acknowledges a group when the object exists and the objects of all groups before
   it exist.
3. After a put with an unknown outcome, and if an object exists already, it reads the
   object.  If the object has the id of another session, this session is *fenced*: it
   acknowledges nothing more.  If there is no object, it puts it again.
4. It writes into every group the number below which all groups were committed when it
   began the group.

Rules of the session that takes over, in Fencing:

5. First it freezes the record of the old session, so that the old session removes no
   more objects: it changes the record, with a comparison, before it removes any.
6. It reads number after number, from the first one in the record.  Where there is no
   object, it puts a fence if absent.  If that finds an object, it reads the number
   again.  It never relies on a list of names, which may be out of date.
7. Before it puts a fence, it reads the last object behind the number.  If that says
   that the number was committed, or is a fence, it reads the number again, because the
   old session may have gone on meanwhile.  If there is still no object, the store has
   lost it: the journal is *damaged*, and gets no fence.
8. The journal ends before the fence.  The fence stays for ever, because a put of the
   old session may happen at any time.

So nothing that was acknowledged is lost: all groups before an acknowledged one exist,
so the fence comes after it.  And nothing after the fence is ever acknowledged.  If the
store loses an object, no group that was begun after its commit is lost silently.
``tests/properties/test_group_commits.py`` explores all interleavings, and finds a loss
if any of these rules is left out.
"""

from __future__ import annotations

from enum import Enum, auto

FIRST_GROUP = 1
"""The number of the first group of a session."""


class Answer(Enum):
    """The outcome of putting an object if it is absent."""

    STORED = auto()
    EXISTS = auto()
    UNKNOWN = auto()
    """The put failed; it may have happened, or may happen later."""


class Step(Enum):
    """The next step of the caller about a number."""

    PUT = auto()
    """Put the object if it is absent."""
    READ = auto()
    """Read the object's header; repeat this until the store answers."""
    SEARCH = auto()
    """Find the last object behind the number, and what it says about commits."""
    END = auto()
    """Nothing."""


class GroupCommits:
    """
    The groups that a session has put, and which of them are committed.

    Bounds: It has the numbers of the groups in flight.
    """

    def __init__(self, session: bytes) -> None:
        self.next_number = FIRST_GROUP
        """The number of the next group."""
        self.committed_end = FIRST_GROUP
        """All groups with lower numbers are committed."""
        self.is_fenced = False
        """Whether another session has ended the journal of this one."""
        self._session = session
        self._stored: set[int] = set()

    def begin(self) -> int:
        """Return the number of a new group, whose object is to be put."""
        number = self.next_number
        self.next_number += 1
        return number

    def on_put(self, number: int, answer: Answer) -> Step:
        """Take the outcome of a put; return the next step."""
        if answer is not Answer.STORED:
            return Step.READ
        self._on_stored(number)
        return Step.END

    def on_read(self, number: int, writer: bytes | None) -> Step:
        """
        Take the id of the session that wrote an object; None if there is no object.

        Returns the next step.
        """
        if writer is None:
            return Step.PUT
        if writer == self._session:
            self._on_stored(number)
        else:
            self.is_fenced = True
        return Step.END

    def take_committed(self) -> range:
        """Return the numbers of groups that are committed since the last call."""
        begin = end = self.committed_end
        while not self.is_fenced and end in self._stored:
            self._stored.remove(end)
            end += 1
        self.committed_end = end
        return range(begin, end)

    def _on_stored(self, number: int) -> None:
        self._stored.add(number)


class Fencing:
    """The search for the end of a session's journal, to put a fence there."""

    def __init__(self, first: int) -> None:
        """*first* is the lowest number in the record of the session."""
        self.number = first
        """The number that the next step is about."""
        self.end: int | None = None
        """The number of the fence, after Step.END; None if the journal is damaged."""
        self._was_committed = False

    def on_read(self, *, exists: bool, is_fence: bool = False) -> Step:
        """Take what the present number is; return the next step."""
        if not exists:
            return Step.END if self._was_committed else Step.SEARCH
        self._was_committed = False
        if is_fence:
            self.end = self.number
            return Step.END
        self.number += 1
        return Step.READ

    def on_search(self, committed_end: int) -> Step:
        """
        Take the number before which all groups were committed; return the next step.

        It is 0 if there is no object behind the present number.
        """
        self._was_committed = committed_end > self.number
        return Step.READ if self._was_committed else Step.PUT

    def on_put(self, answer: Answer) -> Step:
        """Take the outcome of putting the fence; return the next step."""
        if answer is not Answer.STORED:
            return Step.READ
        self.end = self.number
        return Step.END
