"""
The native protocol as a state machine without I/O, for both sides.

The caller passes received bytes in and gets frames that are valid at this point of the
conversation: the handshake came first, the sender may send this kind, an answer belongs
to an open request and is of the right kind, and a frame on a channel belongs to a
producer, consumer or stage that is open there.  Anything else raises
``ProtocolViolation``, after which the connection is closed.

The client numbers the channels.  When the broker closes a channel (it fenced the
producer, or the topic moved), the client may send frames on it before it knows.  The
broker drops them until the client closes or reopens the channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from google.protobuf.message import DecodeError, Message

from pydanube.model.errors import CorruptBatch, ProtocolViolation
from pydanube.wire.batches import BATCH_MESSAGES_MAX, BatchFrame
from pydanube.wire.batches import decode as decode_batch
from pydanube.wire.buffer import Buffer
from pydanube.wire.native.frames import (
    FRAME_BYTES_MAX,
    HANDSHAKE_BYTES_MAX,
    FrameReader,
    RawFrame,
    header,
)
from pydanube.wire.native.kinds import Kind, Side

PROTOCOL_VERSION = 1
REVISION = 8
"""The revision of this version that we know; see docs/format/stream.md."""
CREDIT_REVISION = 4
"""The first revision in which credit counts bytes before compression, and batches have
at most ``BATCH_MESSAGES_MAX`` messages."""
WORKER_REVISION = 6
"""The first revision in which clients may send EXTEND and RELEASE."""
TRANSACTION_REVISION = 7
"""The first revision in which clients may send BEGIN_TRANSACTION."""
DEDUPLICATION_REVISION = 7
"""The first revision with SET_DEDUPLICATION."""
OFFSETS_REVISION = 7
"""The first revision with LIST_OFFSETS."""
CONFIGURE_REVISION = 7
"""The first revision with CONFIGURE_TOPIC and CONFIGURE_SUBSCRIPTION."""
SECURITY_REVISION = 8
"""The first revision with AUTHENTICATE, and with requests about API keys."""
