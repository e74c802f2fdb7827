"""Values that are loaded from files, and again when the files change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from pydanube.model.errors import InvalidRequest

T = TypeVar("T")

log = logging.getLogger(__name__)


class FromFiles(Generic[T]):
    """
    A value that is loaded from files.

    *what* describes it in the log, in the plural.  Empty names of files are ignored.
    """

    def __init__(self, load: Callable[[], T], names: Sequence[str], what: str) -> None:
        """
        Load the value.

        Raises: As *load*.
        """
        self._load = load
        self._names = tuple(filter(None, names))
        self._what = what
        self._state = self._files_state()
        self._value = load()

    def get(self) -> T:
        """
        Return the value; load it again if a file has changed.

        If the files cannot be used, it is the old one, and the log has the reason.
        """
        state = self._files_state()
        if state != self._state:
            # Files that cannot be used are not tried again until they change.
            self._state = state
            try:
                self._value = self._load()
            except InvalidRequest as error:
                log.error("the old %s stay in use: %s", self._what, error)  # noqa: TRY400
            else:
                log.info("new connections use the changed %s", self._what)
        return self._value

    def _files_state(self) -> list[tuple[int, int, int] | None]:
        """Return what changes when one of the files does."""
        found: list[tuple[int, int, int] | None] = []
        for name in self._names:
            try:
                status = Path(name).stat()
            except OSError:
                found.append(None)
            else:
                found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return found
