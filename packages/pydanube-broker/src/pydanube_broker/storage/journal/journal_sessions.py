"""The sessions of an object journal, and the interface to the list of them."""

from __future__ import annotations

from typing import Protocol

from pydanube.model.errors import CorruptJournal
from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.storage.pure.group_commits import FIRST_GROUP


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSession:
    """
    The part of an object journal that one run of a broker wrote.

    It consists of the groups ``first … end``; recovery reads the sessions in the order
    of their numbers.
    """

    number: int
    """The number of sessions up to this one."""
    session_id: str
    """32 hexadecimal digits; also in every object that the session wrote."""
    prefix: str
    """The names of its objects are this and 20 digits."""
    first: int = FIRST_GROUP
    """The first group that is still needed; it has a snapshot."""
    end: int | None = None
    """The number of the fence; None if the session is not known to be fenced."""
    is_frozen: bool = False
    """Whether another session is taking over, so that this one may not change it."""

    @property
    def writer(self) -> bytes:
        """The session id as it is in the session's objects."""
        return bytes.fromhex(self.session_id)

    def object_name(self, number: int) -> str:
        """Return the name of the object with a group or the fence."""
        return f"{self.prefix}{number:020d}"

    def number_of(self, name: str) -> int:
        """
        Return the number in the name of one of its objects.

        Raises:
            CorruptJournal: It is no such name.
        """
        number = name.removeprefix(self.prefix)
        if not number.isdecimal() or self.object_name(int(number)) != name:
            raise CorruptJournal(
                f"{name}: expected a name that ends in a group's number of 20 digits; "
                "remove the object, if no broker has written it"
            )
        return int(number)


class JournalSessions(Protocol):
    """
    The list of sessions that a journal consists of, in order.

    Raises: Both methods raise MetadataUnavailable if the outcome is unknown.
    """

    async def load(self) -> tuple[JournalSession, ...]:
        """Return the present list."""

    async def replace(
        self, expected: tuple[JournalSession, ...], new: tuple[JournalSession, ...]
    ) -> None:
        """
        Replace the list, if it is as *expected*.

        Durability: On return the change is durable.

        Raises:
            RevisionConflict: Another broker has changed the list.
        """
