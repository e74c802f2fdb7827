"""
Conversions between control messages of the native protocol and types of the model.

``to_wire`` and ``from_wire`` convert a dataclass field by field.  Its message has
fields of the same names, apart from ``_ALIASES``; fields of only one of the two are
left out.

- None is an absent field; if the message always has the field, it is 0 or empty.
- An absent number whose dataclass has a default is that default, and 0 is None.
- A member of an enum is the number of the same name, or its value as text.  An empty
  text is the default of the dataclass's field, if there is one.
- Ranges of offsets are an ``OffsetRanges``, other tuples are repeated fields.
- An optional number with a fraction is a duration in seconds, which must be finite and
  not negative.

The conversions from the wire raise InvalidRequest if the peer sent a number that this
version does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from functools import cache, partial
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from pydanube.model.errors import BrokerError, InvalidRequest, error_of
from pydanube.model.policy import (
    AtTime,
    CorruptionPolicy,
    Deduplication,
    DispatchMode,
    Durability,
    Position,
    Retention,
    Start,
    TopicPolicy,
)
from pydanube.model.range_blocks import lowest_bit, ranges_of_bits
from pydanube.model.ranges import Range
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

M = TypeVar("M", bound=Message)
T = TypeVar("T")
E = TypeVar("E", bound=Enum)

RANGES_MAX = 32 * 1024
"""The most ranges in one frame; they always fit into a frame."""

BIT_MAP_BYTES_MAX = 2048
"""The longest bit map of offsets in one frame."""
BIT_MAP_OFFSETS_MAX = 8 * BIT_MAP_BYTES_MAX
OFFSETS_END = 2**64

_ALIASES = {"base": "base_offset", "end": "end_offset", "name": "part"}
"""The names of dataclass fields in messages that do not have a field of that name."""

_PREFIXES = {
    "Backoff": "BACKOFF_",
    "CopyState": "COPY_",
    "CorruptionPolicy": "CORRUPTION_",
    "FindingKind": "FINDING_",
    "PoisonPolicy": "POISON_",
    "ProducerAccess": "ACCESS_",
}
"""The prefix of an enum's numbers in the protocol, by the name of the enum."""


# Dataclasses.


@overload
def to_wire(kind: type[M], value: None, **more: Any) -> None: ...
@overload
def to_wire(kind: type[M], value: DataclassInstance, **more: Any) -> M: ...
def to_wire(kind: type[M], value: DataclassInstance | None, **more: Any) -> M | None:
    """Return a message with the fields of *value* and *more*; None for None."""
    if value is None:
        return None
    if isinstance(value, TopicPolicy):
        return kind(**_policy_fields(value))
    for name, field in _shared_fields(type(value), kind):  # type: ignore[arg-type]
        given = getattr(value, name)
        if given is not None:
            more[field.name] = _value_to_wire(given, field)
        elif _default_of(type(value), name, field) is not None:
            more[field.name] = 0
    return kind(**more)


def from_wire(model: type[T], message: Any, **more: Any) -> T:
    """
    Return a *model* with the fields of *message*, and *more* instead of some of them.

    Raises:
        InvalidRequest: A field of *message* has a value that is not allowed.
    """
    if isinstance(message, pb.TopicPolicy):
        more = _fields_of_policy(message)
    else:
        for name, read in _readers(model, type(message)):  # type: ignore[arg-type]
            if name not in more:
                more[name] = read(message)
    return model(**more)


def changes_from_wire(model: Any, message: Any, names: Iterable[str]) -> dict[str, Any]:
    """
    Return the settings *names* in *message*, with the names and values of *model*.

    Raises:
        InvalidRequest: *names* is empty, or *model* or the message has no setting of
            one of the names, or a setting has a value that is not allowed.
    """
    readers = dict(_readers(model, type(message)))  # type: ignore[arg-type]
    wanted = set(names)
    if unknown := wanted - readers.keys():
        raise InvalidRequest(
            f"there is no setting {min(unknown)[:50]!r}; the settings are "
            f"{', '.join(readers)}"
        )
    if not wanted:
        raise InvalidRequest(
            "no setting is given; the settings that can change are "
            f"{', '.join(readers)}"
        )
    return {name: read(message) for name, read in readers.items() if name in wanted}


@cache
def _shared_fields(model: Any, kind: Any) -> list[tuple[str, Any]]:
    """Return the fields of *model* that *kind* also has, by the name in *model*."""
    known = kind.DESCRIPTOR.fields_by_name
    names = [each.name for each in fields(model)]
    found = [
        (name, known.get(name, known.get(_ALIASES.get(name, name)))) for name in names
    ]
    return [(name, field) for name, field in found if field is not None]


def _value_to_wire(value: Any, field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        kind = GetMessageClass(field.message_type)
        if kind is pb.OffsetRanges:
            return ranges_to_wire(value)
        if isinstance(value, tuple):
            return [to_wire(kind, each) for each in value]
        return to_wire(kind, value)
    if isinstance(value, Enum):
        return enum_to_wire(value) if field.enum_type is not None else value.value
    return value


@cache
def _readers(model: Any, kind: Any) -> list[tuple[str, Callable[[Message], Any]]]:
    """Return functions that read the fields of *model* from a message of *kind*."""
    hints = get_type_hints(model)
    defaults = {each.name: each.default for each in fields(model)}
    readers: list[tuple[str, Callable[[Message], Any]]] = []
    for name, field in _shared_fields(model, kind):
        types = get_args(hints[name])
        is_optional = NoneType in types
        hint = types[0] if is_optional else hints[name]
        if is_optional and hint is float:
            what = name.removesuffix("_s").replace("_", " ")
            convert: Callable[[Any], Any] | None = partial(seconds_from_wire, what)
        else:
            convert = _converter(hint, field, defaults[name])
        default = _default_of(model, name, field)
        readers.append(
            (name, _reader(field, convert, default, is_optional=is_optional))
        )
    return readers


@cache
def _default_of(model: Any, name: str, field: FieldDescriptor) -> Any:
    """Return what stands for a number that a message does not have; None: nothing."""
    [default] = [each.default for each in fields(model) if each.name == name]
    is_number = isinstance(default, int | float)
    return default if is_number and field.has_presence else None


def _reader(
    field: FieldDescriptor,
    convert: Callable[[Any], Any] | None,
    default: Any,
    *,
    is_optional: bool,
) -> Callable[[Message], Any]:
    name, has_presence = field.name, field.has_presence

    def read(message: Message) -> Any:
        if default is not None and not message.HasField(name):
            return default
        if is_optional and has_presence and not message.HasField(name):
            return None
        value = getattr(message, name)
        if convert is not None:
            value = convert(value)
        return value or None if is_optional and not has_presence else value

    return read


def _converter(
    hint: Any, field: FieldDescriptor, default: Any
) -> Callable[[Any], Any] | None:
    """Return the conversion of the field's values to *hint*; None: none is needed."""
    if field.message_type is not None:
        return _message_converter(hint, GetMessageClass(field.message_type))
    if get_origin(hint) is tuple:
        return tuple
    if isinstance(hint, type) and issubclass(hint, Enum):
        if field.enum_type is not None:
            return partial(enum_from_wire, hint)
        parse = hint.parse  # type: ignore[attr-defined]
        return lambda text: parse(text) if text or default is MISSING else default
    return None


def _message_converter(hint: Any, kind: type[Message]) -> Callable[[Any], Any]:
    if kind is pb.OffsetRanges:
        return lambda message: tuple(ranges_from_wire(message))
    if get_origin(hint) is tuple:
        read = partial(from_wire, get_args(hint)[0])
        return lambda messages: tuple(map(read, messages))
    return partial(from_wire, hint)


# Enums.


def enum_to_wire(member: Enum) -> Any:
    """Return the number of *member* in the protocol's enum of the same name."""
    return _numbers(type(member))[member]


def enum_from_wire(enum: type[E], number: int) -> E:
    """
    Return the member of *enum* that has this number in the protocol.

    Raises:
        InvalidRequest: This version does not know the number.
    """
    numbers: Mapping[E, int] = _numbers(enum)
    for member, known in numbers.items():
        if known == number:
            return member
    what = re.sub("(?<!^)([A-Z])", r" \1", enum.__name__).lower()
    raise InvalidRequest(
        f"a {what} of number {number} is unknown to this version of pydanube"
    )


@cache
def _numbers(enum: Any) -> Mapping[Any, int]:
    known = pb.DESCRIPTOR.enum_types_by_name[enum.__name__].values_by_name
    prefix = _PREFIXES.get(enum.__name__, "")
    return {member: known[prefix + member.name].number for member in enum}


# Exceptions.


def error_to_wire(error: BrokerError) -> pb.Error:
    return pb.Error(code=error.code, message=str(error))


def error_from_wire(message: pb.Error) -> BrokerError:
    return error_of(message.code, message.message)


def _policy_fields(policy: TopicPolicy) -> dict[str, Any]:
    return {
        "non_reliable": not policy.is_reliable,
        "written_is_enough": policy.durability is Durability.WRITTEN,
        "ttl_s": policy.ttl_s or 0,
        "on_corruption": enum_to_wire(policy.on_corruption),
        "retention": to_wire(pb.Retention, policy.retention),
        "seal_bytes": policy.seal_bytes or 0,
        "seal_age_s": policy.seal_age_s or 0,
        "deduplication": to_wire(pb.Deduplication, policy.deduplication),
    }


def _fields_of_policy(message: pb.TopicPolicy) -> dict[str, Any]:
    return {
        "dispatch": (
            DispatchMode.NON_RELIABLE if message.non_reliable else DispatchMode.RELIABLE
        ),
        "durability": (
            Durability.WRITTEN if message.written_is_enough else Durability.DURABLE
        ),
        "retention": (
            from_wire(Retention, message.retention)
            if message.HasField("retention")
            else None
        ),
        "ttl_s": seconds_from_wire("time to live", message.ttl_s),
        "on_corruption": enum_from_wire(CorruptionPolicy, message.on_corruption),
        "seal_bytes": message.seal_bytes or None,
        "seal_age_s": seconds_from_wire("seal age", message.seal_age_s),
        "deduplication": (
            from_wire(Deduplication, message.deduplication)
            if message.HasField("deduplication")
            else None
        ),
    }


def position_to_wire(position: Position, kind: type[M]) -> M:
    """Return a message of *kind*, which is ``pb.Position`` or ``pb.Seek``."""
    if isinstance(position, AtTime):
        return kind(publish_time=position.publish_time)
    if isinstance(position, Start):
        return kind(start=enum_to_wire(position))
    return kind(offset=position)


def position_from_wire(message: pb.Position | pb.Seek) -> Position:
    match message.WhichOneof("to"):
        case "offset":
            return message.offset
        case "publish_time":
            return AtTime(message.publish_time)
        case _:
            return enum_from_wire(Start, message.start)


def ranges_to_wire(ranges: Iterable[Range]) -> pb.OffsetRanges:
    pairs = list(ranges)
    return pb.OffsetRanges(
        base=[base for base, _ in pairs], end=[end for _, end in pairs]
    )


def bits_to_wire(origin: int, bits: int) -> list[pb.OffsetRanges]:
    """Return messages of the offsets *origin* + i for each set bit i of *bits*."""
    found = []
    mask = (1 << BIT_MAP_OFFSETS_MAX) - 1
    while bits:
        # Each bit map begins at an offset that it contains.
        skipped = lowest_bit(bits)
        bits >>= skipped
        origin += skipped
        part = bits & mask
        data = part.to_bytes((part.bit_length() + 7) // 8, "little")
        found.append(pb.OffsetRanges(origin=origin, bits=data))
        bits >>= BIT_MAP_OFFSETS_MAX
        origin += BIT_MAP_OFFSETS_MAX
    return found


def bits_from_wire(message: pb.OffsetRanges) -> int:
    """
    Return the bit map in *message* as a number.

    Raises:
        InvalidRequest: The bit map is too long, or ends above the highest offset.
    """
    data = message.bits
    if len(data) > BIT_MAP_BYTES_MAX:
        raise InvalidRequest(
            f"a bit map of offsets has {len(data)} bytes, at most {BIT_MAP_BYTES_MAX} "
            "are allowed: send several messages"
        )
    bits = int.from_bytes(data, "little")
    if message.origin + bits.bit_length() >= OFFSETS_END:
        raise InvalidRequest(
            f"a bit map of offsets begins at {message.origin} and has "
            f"{bits.bit_length()} bits: no offset may reach 2**64 - 1"
        )
    return bits


def divided_to_wire(ranges: Iterable[Range]) -> list[pb.OffsetRanges]:
    """Return messages with up to ``RANGES_MAX`` ranges each; at least one message."""
    pairs = list(ranges)
    return [
        ranges_to_wire(pairs[at : at + RANGES_MAX])
        for at in range(0, max(len(pairs), 1), RANGES_MAX)
    ]


def ranges_from_wire(
    message: pb.OffsetRanges, count_max: int | None = None
) -> list[Range]:
    """
    Return the offset ranges in *message*, also those of its bit map.

    Raises:
        InvalidRequest: The numbers of bases and ends differ, a range is empty, there
            are more than *count_max*, or the bit map is invalid.
    """
    bases, ends = message.base, message.end
    if len(bases) != len(ends):
        raise InvalidRequest(
            f"offset ranges have {len(bases)} bases and {len(ends)} ends: each range "
            "needs one of both"
        )
    if count_max is not None and len(bases) > count_max:
        raise InvalidRequest(
            f"{len(bases)} offset ranges in one message, at most {count_max} are "
            "allowed: send several messages"
        )
    for base, end in zip(bases, ends, strict=True):
        if base >= end:
            raise InvalidRequest(
                f"the offset range {base} to {end} is empty: its end must be greater "
                "than its base"
            )
    ranges = list(zip(bases, ends, strict=True))
    if message.bits:
        ranges += ranges_of_bits(message.origin, bits_from_wire(message))
    return ranges


def seconds_from_wire(what: str, seconds: float) -> float | None:
    """
    Return a duration, or None for 0.

    Raises:
        InvalidRequest: The duration is negative, infinite, or not a number.
    """
    if not 0 <= seconds < float("inf"):
        raise InvalidRequest(f"{what} must be a number of seconds, not {seconds}")
    return seconds or None
