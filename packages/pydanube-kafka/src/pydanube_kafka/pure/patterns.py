"""
Regular expressions over the names of topics, whose work is bounded.

The syntax is what RE2 and Python have in common: characters, classes, groups,
alternatives and repetitions.  A pattern has to match a whole name.  It is an automaton,
whose states are sets of positions that are computed when they are reached first, so the
work for a name is one step for each character, whatever the pattern is.
"""

from __future__ import annotations

import string
from collections.abc import Iterable

LENGTH_MAX = 256
"""The longest pattern."""
DEPTH_MAX = 20
"""The most groups within each other."""
POSITIONS_MAX = 256
"""The most positions of a pattern, when its repetitions are written out."""
STATES_MAX = 500
"""The most states that are computed for a pattern."""

ALPHABET = frozenset(string.ascii_letters + string.digits + "._-")
"""The characters of names of topics."""
_CLASSES = {
    "d": frozenset(string.digits),
    "w": frozenset(string.ascii_letters + string.digits + "_"),
    "s": frozenset[str](),
}
_START, _END = "start", "end"


class BadPattern(ValueError):
    """A text is no pattern, or takes too much work."""


class Pattern:
    """
    A pattern.

    Bounds: ``POSITIONS_MAX`` positions and ``STATES_MAX`` states.
    """

    def __init__(self, text: str) -> None:
        """
        Parse *text*.

        Raises:
            BadPattern: It is no pattern, or too long.
        """
        if len(text) > LENGTH_MAX:
            raise BadPattern(f"a pattern has at most {LENGTH_MAX} characters")
        self._nodes: list[tuple[frozenset[str] | str | None, list[int]]] = []
        """The characters that each position takes, and what may follow it."""
        start = self._node()
        self._last = _Parser(text, self).parse(start)
        first = self._closure([start], is_first=True)
        self._ids: dict[frozenset[int], int] = {}
        self._positions: list[frozenset[int]] = []
        self._steps: list[dict[str, int]] = []
        self._is_match: list[bool] = []
        self._first = self._state(first, is_first=True)

    def matches(self, name: str) -> bool:
        """
        Return whether the pattern matches the whole *name*.

        Raises:
            BadPattern: That takes too much work.
        """
        state, steps = self._first, self._steps
        for each in name:
            following = steps[state].get(each)
            state = self._step(state, each) if following is None else following
        return self._is_match[state]

    # The automaton.

    def _node(self, takes: frozenset[str] | str | None = None) -> int:
        if len(self._nodes) >= POSITIONS_MAX:
            raise BadPattern("the pattern repeats too much")
        self._nodes.append((takes, []))
        return len(self._nodes) - 1

    def add(self, after: int, takes: frozenset[str] | str | None = None) -> int:
        """Add a position behind *after*; return its number."""
        added = self._node(takes)
        self.link(after, added)
        return added

    def link(self, before: int, after: int) -> None:
        """Let a position follow another one."""
        self._nodes[before][1].append(after)

    def _closure(
        self, positions: Iterable[int], *, is_first: bool, is_last: bool = False
    ) -> frozenset[int]:
        """Return the positions that are reached without a character."""
        waiting, found = list(positions), set[int]()
        while waiting:
            at = waiting.pop()
            if at in found:
                continue
            found.add(at)
            for each in self._nodes[at][1]:
                takes = self._nodes[each][0]
                if (
                    takes is None
                    or (takes == _START and is_first)
                    or (takes == _END and is_last)
                ):
                    waiting.append(each)
        return frozenset(found)

    def _state(self, positions: frozenset[int], *, is_first: bool = False) -> int:
        known = None if is_first else self._ids.get(positions)
        if known is not None:
            return known
        if len(self._positions) >= STATES_MAX:
            raise BadPattern("the pattern takes too much work")
        if not is_first:
            self._ids[positions] = len(self._positions)
        self._positions.append(positions)
        self._steps.append({})
        last = self._closure(positions, is_first=is_first, is_last=True)
        self._is_match.append(self._last in last)
        return len(self._positions) - 1

    def _step(self, state: int, character: str) -> int:
        reached = {
            each
            for at in self._positions[state]
            for each in self._nodes[at][1]
            if isinstance(takes := self._nodes[each][0], frozenset)
            and character in takes
        }
        found = self._state(self._closure(reached, is_first=False))
        self._steps[state][character] = found
        return found


class _Parser:
    """Reads a text, and adds its positions to a pattern."""

    def __init__(self, text: str, pattern: Pattern) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._pattern = pattern

    def parse(self, start: int) -> int:
        end = self._alternatives(start)
        if self._at < len(self._text):
            raise BadPattern("a ')' has no '('")
        return end

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        found = self._peek()
        if not found:
            raise BadPattern("the pattern is cut off")
        self._at += 1
        return found

    def _alternatives(self, start: int) -> int:
        end = self._pattern.add(self._sequence(start))
        while self._peek() == "|":
            self._at += 1
            self._pattern.link(self._sequence(start), end)
        return end

    def _sequence(self, start: int) -> int:
        while self._peek() not in {"", "|", ")"}:
            start = self._repeated(start)
        return start

    def _repeated(self, start: int) -> int:
        """Read one item with its repetition, once for each time that it may occur."""
        begin = self._at
        start = self._pattern.add(start)
        end = self._item(start)
        after = self._at
        least, most = self._repetition()
        if (least, most) == (1, 1):
            return end
        self._peek()
        behind = self._at

        def again(at: int) -> int:
            self._at = begin
            found = self._item(self._pattern.add(at))
            assert self._at == after
            return found

        ends = [start, end]
        for _ in range(1, max(least, most or 0)):
            ends.append(again(ends[-1]))
        self._at = behind
        last = self._pattern.add(ends[-1])
        if most is None:
            # The last item once more, as often as there is one.
            self._pattern.link(ends[-1], ends[-2])
        for each in ends[least:-1]:
            self._pattern.link(each, last)
        if most == 0:
            return self._pattern.add(start)
        return last

    def _repetition(self) -> tuple[int, int | None]:
        bounds: tuple[int, int | None] | None = None
        match self._peek():
            case "*":
                bounds = 0, None
            case "+":
                bounds = 1, None
            case "?":
                bounds = 0, 1
            case "{":
                bounds = self._counts()
        if bounds is None:
            return 1, 1
        self._at += 1
        if self._peek() == "?":
            # To prefer few makes no difference for whole names.
            self._at += 1
        if self._peek() in {"*", "+", "?", "{"}:
            raise BadPattern("a repetition is repeated")
        return bounds

    def _counts(self) -> tuple[int, int | None]:
        close = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : max(close, 0)].partition(",")
        if not low.isdecimal() or not (high.isdecimal() or not high):
            raise BadPattern("a '{' needs one or two numbers and a '}'")
        least = int(low[:4])
        most = int(high[:4]) if high else (None if comma else least)
        if least > POSITIONS_MAX or (
            most is not None and not least <= most <= POSITIONS_MAX
        ):
            raise BadPattern(f"a count is out of order, or above {POSITIONS_MAX}")
        self._at = close
        return least, most

    def _item(self, start: int) -> int:  # noqa: PLR0911
        character, add = self._take(), self._pattern.add
        match character:
            case "(":
                return self._group(start)
            case "[":
                return add(start, self._class())
            case ".":
                return add(start, ALPHABET)
            case "^":
                return add(start, _START)
            case "$":
                return add(start, _END)
            case "\\":
                return add(start, self._escaped())
            case "*" | "+" | "?" | "{":
                raise BadPattern(f"nothing is before {character!r}")
        return add(start, frozenset(character))

    def _group(self, start: int) -> int:
        if self._text.startswith("?:", self._at):
            self._at += 2
        elif self._peek() == "?":
            raise BadPattern("groups have no options")
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise BadPattern(f"more than {DEPTH_MAX} groups are within each other")
        end = self._alternatives(self._pattern.add(start))
        self._depth -= 1
        if self._take() != ")":
            raise BadPattern("a '(' has no ')'")
        return end

    def _escaped(self) -> frozenset[str]:
        character = self._take()
        if character.lower() in _CLASSES:
            found = _CLASSES[character.lower()]
            return found if character.islower() else ALPHABET - found
        if character.isalnum():
            raise BadPattern(f"'\\{character}' is not known")
        return frozenset(character)

    def _class(self) -> frozenset[str]:
        is_negated = self._peek() == "^"
        self._at += is_negated
        found, is_first = set[str](), True
        while (character := self._take()) != "]" or is_first:
            is_first = False
            if character == "[" and self._peek() == ":":
                raise BadPattern("classes have no names")
            low = self._escaped() if character == "\\" else frozenset(character)
            is_range = self._peek() == "-" and self._text[self._at + 1 :][:1] != "]"
            if not is_range:
                found |= low
                continue
            self._at += 1
            character = self._take()
            high = self._escaped() if character == "\\" else frozenset(character)
            if len(low) != 1 or len(high) != 1 or min(low) > min(high):
                raise BadPattern("the ends of a range are out of order")
            found |= {each for each in ALPHABET if min(low) <= each <= min(high)}
        return frozenset(ALPHABET - found if is_negated else found)
