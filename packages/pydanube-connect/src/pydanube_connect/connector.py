"""The base classes of connectors: sources and sinks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from pydanube.client.messages.messages import Message
from pydanube.declarations.pure.sections import Section
from pydanube_connect.pure.records import Batch


class NoOptions(Section, frozen=True):
    """The options of a connector that has none."""


class Connector:
    """A source or a sink, made from the options of its declaration."""

    Options: ClassVar[type[Section]] = NoOptions
    """The fields of ``options``."""
    extra: ClassVar[str | None] = None
    """The extra of pydanube with the packages that it needs."""

    directory: Path = Path()
    """The directory of its file, to which relative paths and functions refer."""

    def __init__(self, options: Any) -> None:
        self.options = options

    @classmethod
    def problems(cls, options: Any) -> dict[str, str]:
        """Return what is wrong with *options* of valid types, by option."""
        del options
        return {}

    @classmethod
    def functions(cls, options: Any) -> dict[str, str]:
        """Return the functions of users that *options* name, by option."""
        del options
        return {}

    async def check(self) -> None:
        """
        Check what can be checked without changing anything, for a trial.

        A sink has been entered.

        Raises:
            ConnectorFailed, Transient, OSError: The connector could not run now.
        """


class Source(Connector, ABC):
    """
    A system that messages come from.

    ``batches`` is an async generator: it opens what it needs, yields batches, and
    closes everything in ``finally`` or ``async with``.  Errors that ``is_transient``
    accepts open it again after a pause.

    Delivery: If the batches have positions, each message is published exactly once.
        Otherwise a source acknowledges messages in ``Batch.on_stored``, and each is
        published at least once.
    """

    has_positions: ClassVar[bool] = True
    """Whether each batch has a position."""
    has_effects: ClassVar[bool] = False
    """Whether reading changes the other system, so that a trial must not read."""
    refuses: ClassVar[bool] = False
    """
    Whether the source can refuse records, if the connector has no ``dead_letters``.
    """

    @classmethod
    def finds_schemas(cls, options: Any) -> bool:
        """Return whether records may have schemas, which the worker registers."""
        del options
        return False

    @abstractmethod
    def batches(self, position: Any) -> AsyncIterator[Batch]:
        """Yield what follows *position*; None: begin as the options say."""

    def lag(self) -> int | None:
        """Return how many messages wait in the source, or None if it is unknown."""
        return None


class Sink(Connector, ABC):
    """
    A system that messages go to.

    Delivery: Messages are acknowledged after ``write`` has returned, so each is written
        at least once.
    """

    needs_order: ClassVar[bool] = False
    """Whether messages must come in order, so that one process gets all of a topic."""

    @classmethod
    def needs_order_with(cls, options: Any) -> bool:
        """Return whether messages must come in order with *options*."""
        del options
        return cls.needs_order

    async def __aenter__(self) -> Self:
        """Open connections."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close them."""

    @abstractmethod
    async def write(self, messages: Sequence[Message]) -> None:
        """
        Write *messages*, in their order.

        Raises:
            Rejected: Some can never be written; the others are.
            Transient, OSError, TimeoutError: Call it again later, with the same ones.
            ConnectorFailed: None can be written until somebody changes something.
            Exception: As Rejected, for a message that the sink did not expect: each is
                written alone then, and those that fail again are rejected.
        """
