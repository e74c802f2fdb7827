"""The options of a producer."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydanube.model.errors import InvalidRequest
from pydanube.model.names import parse_client_name
from pydanube.model.policy import DispatchMode, ProducerAccess, TopicPolicy
from pydanube.model.positions import parse_choice
from pydanube.wire.batches import Codec

if TYPE_CHECKING:
    from pydanube.model.schemas import ProducerSchema

_CODECS = {None: Codec.NONE, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """The options of a producer."""

    name: str
    is_anonymous: bool
    """True if the client chose the name."""
    policy: TopicPolicy
    """The policy of the topic if it does not exist yet."""
    takes_any_kind: bool
    """True if an existing topic may be reliable or not."""
    codec: Codec
    access: ProducerAccess
    schema: ProducerSchema | None = None
    """The version of a subject that payloads are written with; None: no schema."""

    @classmethod
    def of(
        cls,
        name: str | None = None,
        reliable: bool | None = None,
        compression: str | None = None,
        access: str = "shared",
    ) -> ProducerOptions:
        """Return the options that ``Client.producer`` is called with."""
        mode = DispatchMode.NON_RELIABLE if reliable is False else DispatchMode.RELIABLE
        return cls(
            name=(
                f"producer-{uuid.uuid4().hex[:12]}"
                if name is None
                else parse_client_name("producer", name)
            ),
            is_anonymous=name is None,
            policy=TopicPolicy(dispatch=mode),
            takes_any_kind=reliable is None,
            codec=parse_codec(compression),
            access=parse_choice("access", access, ProducerAccess),
        )


def parse_codec(compression: str | None) -> Codec:
    """
    Return the codec that *compression* names.

    Raises:
        InvalidRequest: There is no such codec.
    """
    if compression not in _CODECS:
        raise InvalidRequest(
            f"compression is 'lz4', 'zstd' or None, not {compression!r}"
        )
    return _CODECS[compression]
