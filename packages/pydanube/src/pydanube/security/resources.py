"""
Resources, on which permissions are held, and patterns of them.

A pattern is compared with names character by character.  Names that only look alike
are different, and a pattern that Unicode can write in another way is refused.
"""

from __future__ import annotations

import unicodedata
from enum import Enum
from functools import lru_cache
from typing import Final

from pydanube.model.errors import InvalidName
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import (
    PARTITION_MARK,
    SYSTEM_NAMESPACE,
    TopicName,
    parse_namespace,
    parse_subject,
)
from pydanube.model.topic_patterns import TopicPattern
from pydanube.model.wildcards import compile_wildcards, has_wildcards

ALL: Final = "*"
"""The pattern of everything, including the namespace ``system``."""
CLUSTER_TEXT: Final = "cluster"
SUBJECT_MARK: Final = "subject:"


class Scope(Enum):
    """The kind of a resource."""

    CLUSTER = "cluster"
    NAMESPACE = "namespace"
    TOPIC = "topic"
    SUBJECT = "subject"


@dataclass(frozen=True, slots=True)
class Resource:
    """A topic, a namespace, a subject of schemas, or the cluster as a whole."""

    scope: Scope
    name: str = ""
    """``/namespace/topic``, the namespace or the subject; empty for the cluster."""

    @classmethod
    def parse(cls, text: str) -> Resource:
        """
        Return the resource that *text* names, in the syntax of patterns.

        Raises:
            InvalidName: It is not ``cluster``, ``/namespace``, ``/namespace/topic`` or
                ``subject:NAME``.
        """
        if text == CLUSTER_TEXT:
            return CLUSTER
        if text.startswith(SUBJECT_MARK):
            return cls.subject(parse_subject(text.removeprefix(SUBJECT_MARK)))
        if text.startswith("/") and text.count("/") == 1:
            return cls.namespace(parse_namespace(text[1:]))
        if text.startswith("/"):
            return cls.topic(TopicName.parse(text))
        raise InvalidName(
            f"the resource {text!r} must be cluster, /namespace, /namespace/topic or "
            "subject:NAME"
        )

    @classmethod
    def topic(cls, name: TopicName) -> Resource:
        """Return the resource of a topic or partition."""
        return cls(Scope.TOPIC, str(name))

    @classmethod
    def namespace(cls, name: str) -> Resource:
        """Return the resource of a namespace, without its topics."""
        return cls(Scope.NAMESPACE, name)

    @classmethod
    def subject(cls, name: str) -> Resource:
        """Return the resource of a subject of the schema registry."""
        return cls(Scope.SUBJECT, name)

    def __str__(self) -> str:
        match self.scope:
            case Scope.CLUSTER:
                return CLUSTER_TEXT
            case Scope.NAMESPACE:
                return f"/{self.name}"
            case Scope.SUBJECT:
                return f"{SUBJECT_MARK}{self.name}"
        return self.name


CLUSTER: Final = Resource(Scope.CLUSTER)


class ResourcePattern:
    """
    A pattern of resources.

    ``*`` stands for everything, and ``cluster`` for the cluster as a whole.
    ``/namespace``, ``/namespace/topic`` and ``subject:NAME`` may have wildcards: ``*``
    is any text without a slash, ``?`` one character.  The partitions of a topic match
    if the topic does.  Wildcards do not match the namespace ``system``.
    """

    __slots__ = ("_name", "_namespace", "_topic", "scope", "text")

    def __init__(self, text: str) -> None:
        """
        Parse a pattern.

        Raises:
            InvalidName: *text* is no pattern, or is not normalised.
        """
        normal = unicodedata.normalize("NFKC", text)
        if normal != text:
            raise InvalidName(
                f"the pattern {text!r} is not in the Unicode normal form NFKC, so it "
                f"could be mistaken for {normal!r}"
            )
        self.text = text
        self.scope: Scope | None = None
        """The scope of the resources that match; None: all."""
        self._namespace = self._name = ""
        self._topic: TopicPattern | None = None
        if text == ALL:
            return
        plain = text.replace("*", "x").replace("?", "x")
        self.scope = Resource.parse(plain).scope
        match self.scope:
            case Scope.TOPIC:
                self._topic = TopicPattern(text)
                _, self._namespace, self._name = text.split("/")
            case Scope.NAMESPACE:
                self._namespace = text[1:]
            case Scope.SUBJECT:
                self._name = text.removeprefix(SUBJECT_MARK)

    def __str__(self) -> str:
        return self.text

    def matches(self, resource: Resource) -> bool:
        """Return whether *resource* matches."""
        if self.scope is None:
            return True
        if self.scope is not resource.scope:
            return False
        match self.scope:
            case Scope.TOPIC:
                assert self._topic is not None
                return self._topic.matches(TopicName.parse(resource.name))
            case Scope.NAMESPACE:
                return self._matches_namespace(resource.name)
            case Scope.SUBJECT:
                return _is_match(self._name, resource.name)
        return True

    def has_matches_in(self, namespace: str) -> bool:
        """Return whether *namespace* or some possible topic in it matches."""
        if self.scope in {Scope.TOPIC, Scope.NAMESPACE}:
            return self._matches_namespace(namespace)
        return self.scope is None

    def covers(self, other: ResourcePattern) -> bool:
        """
        Return whether everything that matches *other* also matches this pattern.

        It may return False although that is so, but never True if it is not.
        """
        if self.scope is None:
            return True
        if self.scope is not other.scope:
            return False
        if has_wildcards(self._namespace) and other._namespace == SYSTEM_NAMESPACE:
            return False
        if not _covers(self._namespace, other._namespace):
            return False
        if self.scope is Scope.TOPIC and self._name != ALL:
            # The two kinds of patterns compare different names of a partition.
            names = self._name, other._name
            if len({PARTITION_MARK in name for name in names}) > 1:
                return False
        return _covers(self._name, other._name)

    def _matches_namespace(self, name: str) -> bool:
        if has_wildcards(self._namespace) and name == SYSTEM_NAMESPACE:
            return False
        return _is_match(self._namespace, name)


@lru_cache(maxsize=4096)
def pattern_of(text: str) -> ResourcePattern:
    """
    Return the pattern *text*.

    Raises:
        InvalidName: As ``ResourcePattern``.
    """
    return ResourcePattern(text)


_compiled = lru_cache(maxsize=4096)(compile_wildcards)


def _is_match(pattern: str, name: str) -> bool:
    if not has_wildcards(pattern):
        return pattern == name
    return _compiled(pattern).match(name) is not None


def _covers(wide: str, narrow: str) -> bool:
    """
    Return whether the wildcards and characters of *wide* produce those of *narrow*.

    A wildcard of *narrow* stands for texts that are not known here, so only a wildcard
    of *wide* that is at least as general takes it in.
    """
    # The positions in *wide* that may be reached with the text of *narrow* so far.
    reached = _skip_stars(wide, {0})
    for character in narrow:
        following = set()
        for at in reached:
            if at == len(wide):
                continue
            if wide[at] == "*":
                following.add(at)
            elif (wide[at] == "?" and character != "*") or (
                wide[at] == character and character not in "*?"
            ):
                following.add(at + 1)
        reached = _skip_stars(wide, following)
    return len(wide) in reached


def _skip_stars(pattern: str, positions: set[int]) -> set[int]:
    """Return *positions*, and those after stars, which may stand for nothing."""
    reached = set(positions)
    for at in positions:
        while at < len(pattern) and pattern[at] == "*":
            at += 1  # noqa: PLW2901  # It walks over the stars.
            reached.add(at)
    return reached
