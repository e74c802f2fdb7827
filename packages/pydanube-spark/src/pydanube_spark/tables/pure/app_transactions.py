"""The versions that applications have reached in a lakehouse table."""

from __future__ import annotations

from dataclasses import dataclass

from pydanube.model.errors import Conflict


@dataclass(frozen=True, slots=True)
class AppTransaction:
    """
    The record that an application has reached *version*, committed with its rows.

    It is Delta's application transaction; an Iceberg table stores it as a property.
    """

    app: str
    version: int
    after: int | None = None
    """The version it must have had; -1: none. None: any lower version."""

    def is_reached(self, now: int | None) -> bool:
        """
        Return whether the application, which is at *now*, has reached this version.

        Raises:
            Conflict: It is at another version than *after*.
        """
        if self.after is None:
            return now is not None and now >= self.version
        if (-1 if now is None else now) != self.after:
            raise Conflict(
                f"{self.app} is at {now} in the table, not at {self.after}: another "
                "writer uses the same application id; stop one of the two"
            )
        return False
