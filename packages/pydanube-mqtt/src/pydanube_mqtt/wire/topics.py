"""
Topic names and topic filters of MQTT.

``+`` in a filter stands for one level and ``#`` for all last levels, also none.
Neither stands for a first level that begins with ``$``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from pydanube.model.lazy_dataclasses import dataclass
from pydanube_mqtt.wire.packets import PacketError, Reason

T = TypeVar("T")

LEVELS_MAX = 128
"""The most levels of a topic name or filter."""

SHARE = "$share"


def check_topic(topic: str) -> None:
    """
    Raise unless *topic* is the name of a topic.

    Raises:
        PacketError: It is empty, has wildcards, or has too many levels.
    """
    if not topic or "+" in topic or "#" in topic or "\0" in topic:
        raise PacketError(
            Reason.TOPIC_NAME_INVALID, f"{topic[:80]!r} is not the name of a topic"
        )
    if topic.count("/") >= LEVELS_MAX:
        raise PacketError(
            Reason.TOPIC_NAME_INVALID, f"a topic has at most {LEVELS_MAX} levels"
        )


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """A topic filter, such as ``sensors/+/temperature``."""

    text: str
    """The filter without a share group."""
    levels: tuple[str, ...]
    group: str = ""
    """The share group if the filter began with ``$share/GROUP/``."""

    @classmethod
    def parse(cls, text: str) -> TopicFilter:
        """
        Return the filter that *text* is.

        Raises:
            PacketError: *text* is not a topic filter.
        """
        group, rest = "", text
        if text == SHARE or text.startswith(f"{SHARE}/"):
            _, _, shared = text.partition("/")
            group, mark, rest = shared.partition("/")
            if not group or not mark or "+" in group or "#" in group:
                raise _invalid(text)
        levels = tuple(rest.split("/"))
        if not rest or "\0" in rest or len(levels) > LEVELS_MAX:
            raise _invalid(text)
        for at, level in enumerate(levels):
            if ("+" in level and level != "+") or (
                "#" in level and (level != "#" or at < len(levels) - 1)
            ):
                raise _invalid(text)
        return cls(rest, levels, group)

    def matches(self, topic: str) -> bool:
        """Return whether *topic* matches the filter."""
        levels = topic.split("/")
        first = self.levels[0]
        if topic.startswith("$") and first in {"+", "#"}:
            return False
        for at, level in enumerate(self.levels):
            if level == "#":
                return True
            if at >= len(levels) or level not in {"+", levels[at]}:
                return False
        return len(levels) == len(self.levels)

    def overlaps(self, other: TopicFilter) -> bool:
        """Return whether a topic may match both filters."""
        mine, others = self.levels, other.levels
        for at in range(max(len(mine), len(others))):
            one = mine[at] if at < len(mine) else None
            two = others[at] if at < len(others) else None
            if "#" in (one, two):
                return True
            if one is None or two is None:
                return False
            if one != two and "+" not in {one, two}:
                return False
        return True

    @property
    def has_wildcards(self) -> bool:
        """Whether several topics may match."""
        return "+" in self.levels or self.levels[-1] == "#"


def _invalid(text: str) -> PacketError:
    return PacketError(
        Reason.TOPIC_FILTER_INVALID, f"{text[:80]!r} is not a topic filter"
    )


class _Node(Generic[T]):
    __slots__ = ("children", "values")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.values: dict[object, T] = {}


class FilterTree(Generic[T]):
    """Values by topic filter; finds those whose filter matches a topic."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, levels: tuple[str, ...], key: object, value: T) -> None:
        """Add *value* under a filter and a *key*; it replaces that of the same key."""
        node = self._root
        for level in levels:
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        node.values[key] = value

    def remove(self, levels: tuple[str, ...], key: object) -> None:
        """Remove the value that was added under a filter and a *key*, if any."""
        path = [self._root]
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return
            path.append(child)
        path[-1].values.pop(key, None)
        for at in range(len(levels), 0, -1):
            node = path[at]
            if node.values or node.children:
                return
            del path[at - 1].children[levels[at - 1]]

    def match(self, topic: str) -> list[T]:
        """Return the values whose filters *topic* matches."""
        found: list[T] = []
        levels = topic.split("/")
        nodes = [self._root]
        may_be_wild = not topic.startswith("$")
        for level in levels:
            following: list[_Node[T]] = []
            for node in nodes:
                children = node.children
                if not children:
                    continue
                if (child := children.get(level)) is not None:
                    following.append(child)
                if may_be_wild:
                    if (child := children.get("+")) is not None:
                        following.append(child)
                    if (child := children.get("#")) is not None:
                        found.extend(child.values.values())
            if not following:
                return found
            nodes, may_be_wild = following, True
        for node in nodes:
            found.extend(node.values.values())
            if (child := node.children.get("#")) is not None:
                found.extend(child.values.values())
        return found


class _Leaf(Generic[T]):
    __slots__ = ("children", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Leaf[T]] = {}
        self.value: T | None = None


class TopicTree(Generic[T]):
    """Values by topic; finds those whose topic matches a filter."""

    def __init__(self) -> None:
        self._root: _Leaf[T] = _Leaf()

    def put(self, topic: str, value: T) -> T | None:
        """Set the value of *topic*, and return the one that it had."""
        leaf = self._root
        for level in topic.split("/"):
            child = leaf.children.get(level)
            if child is None:
                child = leaf.children[level] = _Leaf()
            leaf = child
        before, leaf.value = leaf.value, value
        return before

    def pop(self, topic: str) -> T | None:
        """Remove the value of *topic* and return it, if it has one."""
        levels = topic.split("/")
        path = [self._root]
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return None
            path.append(child)
        before, path[-1].value = path[-1].value, None
        for at in range(len(levels), 0, -1):
            if path[at].value is not None or path[at].children:
                break
            del path[at - 1].children[levels[at - 1]]
        return before

    def get(self, topic: str) -> T | None:
        """Return the value of *topic*, if it has one."""
        leaf = self._root
        for level in topic.split("/"):
            child = leaf.children.get(level)
            if child is None:
                return None
            leaf = child
        return leaf.value

    def match(self, topic_filter: TopicFilter) -> Iterator[T]:
        """Yield the values of the topics that match a filter."""
        nodes = [self._root]
        for at, level in enumerate(topic_filter.levels):
            if level == "#":
                for node in nodes:
                    yield from _everything(node, is_first=at == 0)
                return
            if level == "+":
                nodes = [
                    child
                    for node in nodes
                    for name, child in node.children.items()
                    if at or not name.startswith("$")
                ]
            else:
                nodes = [
                    child
                    for node in nodes
                    if (child := node.children.get(level)) is not None
                ]
        for node in nodes:
            if node.value is not None:
                yield node.value


def _everything(node: _Leaf[T], *, is_first: bool) -> Iterator[T]:
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node.value is not None:
            yield node.value
        waiting += (
            child
            for name, child in node.children.items()
            if not is_first or not name.startswith("$")
        )
        is_first = False
