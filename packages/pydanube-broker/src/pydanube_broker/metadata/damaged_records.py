"""
The records of a metadata store that cannot be decoded.

Another program, or an operator, may have written them.  A damaged record fails only
what it is about, so those who follow or list many records leave it out and go on.
"""

from __future__ import annotations

import logging

from pydanube.model.errors import Corrupt

log = logging.getLogger(__name__)

NOTED_MAX = 1000
"""The most damaged records that are remembered."""

PROBLEMS_MAX = 3
"""The most damaged records named among the problems of a broker."""


class DamagedRecords:
    """The damaged records that were read, until they are replaced or deleted."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}

    def __len__(self) -> int:
        """Return how many are known."""
        return len(self._found)

    def __contains__(self, path: str) -> bool:
        """Return whether the record at *path* is known to be damaged."""
        return path in self._found

    def note(self, path: str, error: Corrupt) -> None:
        """Remember a damaged record, and log it once."""
        text = str(error)
        if self._found.get(path) == text:
            return
        if path in self._found or len(self._found) < NOTED_MAX:
            self._found[path] = text
        log.error("%s; it is left out until it is replaced or deleted", text)

    def forget(self, path: str) -> None:
        """Forget a record that was replaced or deleted."""
        if self._found and self._found.pop(path, None) is not None:
            log.info("the record %s is not damaged any more", path)

    @property
    def problems(self) -> list[str]:
        """Descriptions of the damaged records, for administrators."""
        texts = list(self._found.values())
        shown = texts[:PROBLEMS_MAX]
        if len(texts) > len(shown):
            shown.append(f"{len(texts) - len(shown)} more records are damaged")
        return shown
