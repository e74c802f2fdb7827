"""The operations of a parsed schema, and the processes in which they run."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from pydanube.model.errors import IncompatibleSchema
from pydanube.model.schemas import SchemaType
from pydanube.schemas.language import (
    BadPayload,
    ColumnDecoder,
    Decoder,
    Encoder,
    Incompatibility,
    Validate,
    definition_text,
)
from pydanube.schemas.worker_pool import LimitExceeded, WorkerPool

if TYPE_CHECKING:
    import pyarrow as pa


STEPS_IN_PROCESS_MAX = 2 * 1024 * 1024
"""A payload that takes more steps to validate, about 50 ms, is validated elsewhere."""
EXHAUSTED_MAX = 3
"""After this number of timeouts in a batch, the rest of it is not validated."""

_VALIDATIONS = WorkerPool()
_COMPARISONS = WorkerPool()


class Validator:
    """
    A validator of payloads against a schema.

    Payloads that may take long are validated in a separate process, with a deadline and
    limited memory; a payload that exceeds a limit counts as invalid.
    """

    def __init__(self, schema: ParsedSchema) -> None:
        self._schema = schema
        self.quick_bytes_max = STEPS_IN_PROCESS_MAX // schema.steps_per_byte or -1
        """Larger payloads are validated in another process; -1 means all payloads."""
        self._here: Validate = self._validate_elsewhere
        if self.quick_bytes_max > 0:
            self._here = schema.validator_in_process()

    def __call__(self, payloads: Sequence[bytes]) -> list[BadPayload]:
        """Return the invalid payloads, in order; never raise."""
        limit = self.quick_bytes_max
        for payload in payloads:
            if len(payload) > limit:
                return self._validate_apart(payloads)
        return self._here(payloads)

    def _validate_apart(self, payloads: Sequence[bytes]) -> list[BadPayload]:
        """Validate small payloads in this process, and large ones in another one."""
        quick: list[int] = []
        slow: list[int] = []
        for index, payload in enumerate(payloads):
            is_quick = len(payload) <= self.quick_bytes_max
            (quick if is_quick else slow).append(index)
        bad = []
        for indexes, validate in (
            (quick, self._here),
            (slow, self._validate_elsewhere),
        ):
            found = validate([payloads[index] for index in indexes])
            bad += [(indexes[at], reason) for at, reason in found]
        return sorted(bad)

    def _validate_elsewhere(self, payloads: Sequence[bytes]) -> list[BadPayload]:
        if not payloads:
            return []
        request = ["validate", self._schema.definition, payloads]
        try:
            return [(at, reason) for at, reason in _VALIDATIONS.call(request)]
        except LimitExceeded as error:
            if len(payloads) == 1:
                return [(0, f"the payload cannot be validated: {error}")]
        # Validate each payload alone to find out which one exceeds the limit.
        bad: list[BadPayload] = []
        exhausted = 0
        for index, payload in enumerate(payloads):
            if exhausted == EXHAUSTED_MAX:
                text = f"{exhausted} payloads before it exceeded a limit"
                bad.append((index, f"not validated, because {text}"))
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
    A parsed and checked schema of any language; immutable.

    Validators, decoders and encoders are expensive to create and meant to be reused;
    the returned callables may be used from any thread.
    """

    type: SchemaType
    steps_per_byte = 1
    """The maximum number of steps to validate a payload, per byte."""
    message_path: tuple[int, ...] = ()
    """Protobuf only: the indexes that lead to the message of payloads in its file."""

    def __init__(self, definition: bytes | str) -> None:
        self.text = definition_text(definition)
        """The definition as it was given."""

    @cached_property
    @abstractmethod
    def canonical(self) -> bytes:
        """A form that is equal for schemas with the same meaning."""

    @cached_property
    def fingerprint(self) -> str:
        """``sha256:`` and the digest of the canonical form."""
        return f"sha256:{hashlib.sha256(self.canonical).hexdigest()}"

    def incompatibilities(self, writer: ParsedSchema) -> list[Incompatibility]:
        """
        Return why this schema cannot read some data that *writer* allows.

        An empty list means that it can read all of it.  If this cannot be decided, the
        list has a reason that says so.

        Bounds: At most ``INCOMPATIBILITIES_MAX`` reasons.  A comparison that may take
        long
            runs in another process.
        """
        if writer.type is not self.type:
            text = (
                f"Schema types must match: the reader's is {self.type.value}, the "
                f"writer's {writer.type.value}"
            )
            return [Incompatibility(path="/", rule="schema_type_changed", text=text)]
        if self.canonical == writer.canonical:
            return []
        try:
            if self.is_quick_to_compare(writer):
                return self.incompatibilities_in_process(writer)
            found = _COMPARISONS.call(["compare", self.definition, writer.definition])
        # Two schemas that contain themselves may have many pairs of types.
        except (LimitExceeded, RecursionError) as error:
            text = f"the schemas cannot be compared: {error}"
            return [Incompatibility(path="/", rule="too_complex", text=text)]
        return [Incompatibility(**each) for each in found]

    def is_quick_to_compare(self, writer: ParsedSchema) -> bool:
        """Return whether a comparison takes few steps; *writer* has the same type."""
        assert writer.type is self.type
        return True

    @abstractmethod
    def incompatibilities_in_process(
        self, writer: ParsedSchema
    ) -> list[Incompatibility]:
        """Do the same as ``incompatibilities``, always in this process."""

    def reuses(self, older: ParsedSchema) -> list[Incompatibility]:
        """
        Return where this newer schema uses what *older* declares to be used up.

        Unlike ``incompatibilities``, this is about the order of versions, not about who
        reads.  Only some languages have such declarations.
        """
        del older
        return []

    @property
    def definition(self) -> tuple[str, str, str | None]:
        """The arguments with which another process can parse the schema again."""
        return self.type.value, self.text, None

    def validator(self) -> Validator:
        """Return a validator of payloads."""
        return Validator(self)

    @abstractmethod
    def validator_in_process(self) -> Validate:
        """Return a validator that always runs in this process."""

    @abstractmethod
    def decoder(self) -> Decoder:
        """Return a decoder of payloads into Python values."""

    @abstractmethod
    def encoder(self) -> Encoder:
        """Return an encoder of Python values into payloads."""

    @abstractmethod
    def arrow_type(self) -> pa.DataType:
        """Return the type of a column of decoded values."""

    def column_decoder(self, writer: ParsedSchema | None = None) -> ColumnDecoder:
        """
        Return a decoder of columns of payloads into columns of ``arrow_type()``.

        *writer* is the schema that the payloads were written with, by default this one.
        Fields that only the writer has are dropped; fields that only this schema has
        get their default, if the language has defaults, or null.

        Raises:
            IncompatibleSchema: No data written with *writer* can be read.
        """
        if writer is not None and writer.type is not self.type:
            raise IncompatibleSchema(
                f"data written as {writer.type.value} cannot be read as "
                f"{self.type.value}"
            )
        return self._column_decoder(self if writer is None else writer)

    @abstractmethod
    def _column_decoder(self, writer: ParsedSchema) -> ColumnDecoder:
        """See ``column_decoder``; *writer* is of the same type."""
