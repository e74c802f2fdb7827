"""The interface through which the parts of a client send requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydanube.model.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message as ControlMessage

    from pydanube.wire.batches import BatchFrame


class Requests:
    """The part of a client that sends requests and returns their answers."""

    async def request(
        self,
        message: ControlMessage,
        *,
        on_batch: Callable[[BatchFrame], None] | None = None,
    ) -> Any:
        """
        Send the request *message* and return the answer.

        A repeatable request is sent again for a while if the broker cannot be
        reached or is busy.  FETCHED batches go to *on_batch*.

        Raises:
            InvalidRequest: The broker is too old to know the request.
        """
        raise NotImplementedError

    @property
    def peer_revision(self) -> int:
        """The protocol revision of the broker."""
        raise NotImplementedError

    def require(self, revision: int, what: str) -> None:
        """
        Raise unless the broker knows *what*, which it would ignore otherwise.

        Raises:
            InvalidRequest: The broker's revision is older than *revision*.
        """
        if self.peer_revision < revision:
            raise InvalidRequest(
                f"the broker is older than this client and does not know {what}"
            )
