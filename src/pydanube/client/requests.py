"""Who can ask a broker something; what can be asked stands in the files beside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydanube.model.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message as ControlMessage

    from pydanube.wire.batches import BatchFrame
    from pydanube.wire.native.kinds import Kind


class Requests:
    """What a client asks for in one request and one answer."""

    async def request(
        self,
        kind: Kind,
        message: ControlMessage,
        *,
        is_repeatable: bool = False,
        on_batch: Callable[[BatchFrame], None] | None = None,
    ) -> Any:
        """
        The answer to a request that belongs to no channel.

        One that *is_repeatable* is sent again for a while if the broker cannot
        be reached or asks for patience.

        Raises:
            InvalidRequest: The broker is too old to understand it.
        """
        raise NotImplementedError

    @property
    def peer_revision(self) -> int:
        """How much of the protocol the broker knows."""
        raise NotImplementedError

    def require(self, revision: int, what: str) -> None:
        """
        Make sure that the broker knows *what*, which it would pass over otherwise.

        Raises:
            InvalidRequest: It is of an older *revision*.
        """
        if self.peer_revision < revision:
            raise InvalidRequest(
                f"the broker is older than this client and does not know {what}"
            )
