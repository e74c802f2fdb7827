"""What a schema can do, whatever its language, and where the work is done."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from pydanube.model.errors import IncompatibleSchema
from pydanube.schemas.language import Incompatibility
from pydanube.schemas.worker_pool import LimitExceeded, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pydanube.model.schemas import SchemaType
    from pydanube.schemas.language import (
        BadPayload,
        ColumnDecoder,
        Decoder,
        Encoder,
        Validate,
    )

STEPS_IN_PROCESS_MAX = 2 * 1024 * 1024
"""Validating one payload takes no more steps in this process, some 50 ms at most."""
EXHAUSTED_MAX = 3
"""After so many payloads of a batch that took too long, the rest is refused."""

_VALIDATIONS = WorkerPool()
_COMPARISONS = WorkerPool()


class Validator:
    """
    Finds the payloads of a batch that do not keep to a schema.

    Payloads that might take long are validated in a process of its own, with a
    deadline and limited memory; one that takes more counts as bad.
    """

    def __init__(self, schema: ParsedSchema) -> None:
        self._schema = schema
        self._here: Validate | None = None
        self.quick_bytes_max = STEPS_IN_PROCESS_MAX // schema.steps_per_byte
        """Payloads with more bytes are validated in another process; -1: all."""
        if schema.steps_per_byte > STEPS_IN_PROCESS_MAX:
            self.quick_bytes_max = -1
        else:
            self._here = schema.validator_in_process()

    def __call__(self, payloads: Sequence[bytes]) -> list[BadPayload]:
        """The bad payloads, in order; never raises."""
        here, limit = self._here, self.quick_bytes_max
        for payload in payloads:
            if len(payload) > limit:
                return self._validate_apart(payloads)
        return [] if here is None else here(payloads)

    def _validate_apart(self, payloads: Sequence[bytes]) -> list[BadPayload]:
        """Validate small payloads here, and large ones in another process."""
        quick: list[int] = []
        slow: list[int] = []
        for index, payload in enumerate(payloads):
            is_quick = len(payload) <= self.quick_bytes_max
            (quick if is_quick else slow).append(index)
        bad = []
        if self._here is not None:
            found = self._here([payloads[index] for index in quick])
            bad += [(quick[at], reason) for at, reason in found]
        found = self._validate_elsewhere([payloads[index] for index in slow])
        bad += [(slow[at], reason) for at, reason in found]
        return sorted(bad)

    def _validate_elsewhere(self, payloads: Sequence[bytes]) -> list[BadPayload]:
        request = ["validate", self._schema.definition, payloads]
        try:
            return [(at, reason) for at, reason in _VALIDATIONS.call(request)]
        except LimitExceeded as error:
            if len(payloads) == 1:
                return [(0, f"the payload cannot be validated: {error}")]
        # Which one it was shows if each is validated alone.
        bad: list[BadPayload] = []
        exhausted = 0
        for index, payload in enumerate(payloads):
            if exhausted == EXHAUSTED_MAX:
                reason = f"not validated, because {exhausted} before it took too much"
                bad.append((index, reason))
                continue
            request = ["validate", self._schema.definition, [payload]]
            try:
                bad += [(index, reason) for _, reason in _VALIDATIONS.call(request)]
            except LimitExceeded as error:
                exhausted += 1
                bad.append((index, f"the payload cannot be validated: {error}"))
        return bad


class ParsedSchema(ABC):
    """
    One schema, parsed and checked; immutable.

    What is costly, a validator or a decoder, is made once for a batch or many;
    the callables that are returned may be kept and used from any thread.
    """

    type: ClassVar[SchemaType]

    def __init__(self, text: str) -> None:
        self.text = text
        """The definition as it was given."""

    @cached_property
    @abstractmethod
    def canonical(self) -> bytes:
        """A form that is equal for schemas that mean the same."""

    @cached_property
    def fingerprint(self) -> str:
        """``sha256:`` and the digest of the canonical form."""
        return f"sha256:{hashlib.sha256(self.canonical).hexdigest()}"

    def incompatibilities(self, writer: ParsedSchema) -> list[Incompatibility]:
        """
        Why some of what *writer* allows cannot be read with this schema.

        Empty means that all of it can.  Where that cannot be decided the answer is
        that it cannot, and why.  *writer* is of the same type.

        Bounds: At most ``INCOMPATIBILITIES_MAX`` are found.  A comparison that might
            take long runs in another process.
        """
        if self.is_quick_to_compare(writer):
            return self.incompatibilities_in_process(writer)
        request = ["compare", self.definition, writer.definition]
        try:
            found = _COMPARISONS.call(request)
        except LimitExceeded as error:
            text = f"the schemas cannot be compared: {error}"
            return [Incompatibility(path="/", rule="too_complex", text=text)]
        return [
            Incompatibility(path=path, rule=rule, text=text)
            for path, rule, text in found
        ]

    def is_quick_to_compare(self, writer: ParsedSchema) -> bool:
        """Whether comparing takes few steps; *writer* is of the same type."""
        return writer.type is self.type

    @abstractmethod
    def incompatibilities_in_process(
        self, writer: ParsedSchema
    ) -> list[Incompatibility]:
        """The same as ``incompatibilities``, in this process whatever it takes."""

    @property
    def definition(self) -> tuple[str, str, str | None]:
        """All that another process needs to parse the schema again."""
        return self.type.value, self.text, None

    @property
    def steps_per_byte(self) -> int:
        """The maximum number of steps to validate a payload, for each of its bytes."""
        return 1

    def validator(self) -> Validator:
        """What finds payloads that are not of this schema."""
        return Validator(self)

    @abstractmethod
    def validator_in_process(self) -> Validate:
        """The same, in this process whatever it takes."""

    @abstractmethod
    def decoder(self) -> Decoder:
        """What turns payloads into Python values."""

    @abstractmethod
    def encoder(self) -> Encoder:
        """What turns Python values into payloads."""

    @abstractmethod
    def arrow_type(self) -> pa.DataType:
        """The type of a column of decoded values."""

    def column_decoder(self, writer: ParsedSchema | None = None) -> ColumnDecoder:
        """
        What turns columns of payloads into columns of ``arrow_type()``.

        *writer* is the schema that they were written with, by default this one.
        What it has and this one does not is left out; what it does not have is this
        schema's default, if the language has such a thing, or null.

        Raises:
            IncompatibleSchema: Nothing written with *writer* can be read so.
        """
        if writer is not None and writer.type is not self.type:
            raise IncompatibleSchema(
                f"what is written as {writer.type.value} cannot be read as "
                f"{self.type.value}"
            )
        return self._column_decoder(self if writer is None else writer)

    @abstractmethod
    def _column_decoder(self, writer: ParsedSchema) -> ColumnDecoder:
        """See ``column_decoder``; *writer* is of the same type."""
