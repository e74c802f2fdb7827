"""
Bounds of the cost of decoding one datum of an Avro schema.

The decoder recurses in C without a limit, and makes an object for every value, also for
values that take no bytes.  Two kinds of checks bound this:

- When a schema is parsed, ``bounds_of`` refuses records without a finite value, types
  that nest deeper than ``VALUE_DEPTH_MAX``, and records with many more parts than
  bytes.  Every other datum is decoded in a number of steps that is proportional to
  its bytes.
- If the schema alone does not bound a datum (it is recursive, has arrays whose items
  take no bytes, or has decimals of any length), ``check_datum`` walks over the bytes
  before they are decoded.  The walk uses no recursion.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydanube.model.errors import InvalidPayload, InvalidSchema
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.schemas.avro.types import (
    DECIMAL_BYTES_MAX,
    Array,
    AvroType,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
)

VALUE_DEPTH_MAX = 256
"""The maximum nesting of records, arrays and maps in one datum."""
VALUES_MAX = 4 * 1024 * 1024
"""The maximum number of values in one datum that is walked over."""
VALUES_NOT_WALKED_MAX = 16 * 1024 * 1024
"""A datum with at most this number of values needs no walk."""
EMPTY_VALUES_MAX = 10_000
"""The maximum number of array items without bytes in one datum."""
PARTS_PER_BYTE_MAX = 64
"""The maximum number of a record's parts without bytes, for each byte of the record."""

_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_VARINT_BYTES_MAX = 10


@dataclass(frozen=True, slots=True)
class Bounds:
    """The number of steps that decoding a datum of a schema takes."""

    steps_per_byte: int
    """The maximum number of values for each byte of a datum that needs no walk."""
    walked_bytes_min: int
    """Data with this many bytes or more need ``check_datum`` before decoding."""
    is_recursive: bool


@dataclass(slots=True)
class _Cost:
    """The minimum and maximum cost of one value of a type."""

    bytes_min: int
    parts: int
    """The values without bytes that precede the next value with bytes."""
    depth: int


def bounds_of(root: AvroType, records: Sequence[Record]) -> Bounds:
    """
    Return the bounds of data of *root*.

    *records* are all records of the schema, each after those that it contains.

    Raises:
        InvalidSchema: The schema has no finite values, or its values nest too deep
            or have too many parts without bytes.
    """
    _refuse_endless(records)
    measure = _Measure()
    for record in records:
        measure.add(record)
    cost = measure.cost_of(root)
    _check_depth(cost.depth, "the schema")
    walked = VALUES_NOT_WALKED_MAX // measure.steps_per_byte
    if measure.has_decimals:
        walked = DECIMAL_BYTES_MAX
    if measure.is_recursive or measure.has_empty_items:
        walked = 0
    return Bounds(measure.steps_per_byte, walked, measure.is_recursive)


class _Measure:
    """The costs of the records of one schema, from the inner to the outer ones."""

    def __init__(self) -> None:
        self._costs: dict[int, _Cost] = {}
        self.is_recursive = False
        self.has_empty_items = False
        self.has_decimals = False
        self.steps_per_byte = 1

    def add(self, record: Record) -> None:
        """Measure *record*, after the records that it contains."""
        costs = [self.cost_of(field.type) for field in record.fields]
        cost = _Cost(
            bytes_min=sum(each.bytes_min for each in costs),
            parts=1 + sum(each.parts for each in costs),
            depth=1 + max((each.depth for each in costs), default=0),
        )
        _check_depth(cost.depth, record.name)
        if cost.parts > PARTS_PER_BYTE_MAX * (1 + cost.bytes_min):
            raise InvalidSchema(
                f"{record.name}: the record has {cost.parts} parts that take no bytes "
                f"(null, empty fixed, records) and {cost.bytes_min} bytes at least; "
                f"at most {PARTS_PER_BYTE_MAX} such parts for each byte are allowed"
            )
        ratio = -(-cost.parts // max(1, cost.bytes_min))
        self.steps_per_byte = max(self.steps_per_byte, 1 + ratio)
        self._costs[id(record)] = cost

    def cost_of(self, avro_type: AvroType) -> _Cost:
        match avro_type:
            case Primitive("null"):
                return _Cost(0, 1, 0)
            case Primitive(name, logical):
                if name == "bytes" and logical is not None:
                    self.has_decimals = True
                return _Cost(_WIDTHS.get(name, 1), 0, 0)
            case Fixed(size=size):
                return _Cost(size, 0 if size else 1, 0)
            case Enum():
                return _Cost(1, 0, 0)
            case Union(branches):
                costs = [self.cost_of(branch) for branch in branches]
                depth = max((each.depth for each in costs), default=0)
                return _Cost(1, 0, depth)
            case Array(items):
                cost = self.cost_of(items)
                # The minimum of an unfinished record is not known, but is not 0: a
                # record that can contain itself has a union, array or map.
                is_known = not isinstance(items, Record) or id(items) in self._costs
                self.has_empty_items |= is_known and not cost.bytes_min
                return _Cost(1, 0, 1 + cost.depth)
            case Map(values):
                return _Cost(1, 0, 1 + self.cost_of(values).depth)
            case Record():
                cost_or_none = self._costs.get(id(avro_type))
                if cost_or_none is None:
                    self.is_recursive = True
                    return _Cost(0, 1, 0)
                return cost_or_none


def _check_depth(depth: int, what: str) -> None:
    if depth > VALUE_DEPTH_MAX:
        raise InvalidSchema(
            f"{what}: values nest deeper than {VALUE_DEPTH_MAX} records, arrays and "
            "maps"
        )


def _refuse_endless(records: Sequence[Record]) -> None:
    """Refuse records that always contain themselves, directly or through others."""
    finite: set[int] = set()
    pending = list(records)
    while pending:
        left = []
        for record in pending:
            if all(_has_value(field.type, finite) for field in record.fields):
                finite.add(id(record))
            else:
                left.append(record)
        if len(left) == len(pending):
            raise InvalidSchema(
                f"{left[0].name}: every value of the record contains another one, so "
                "none is finite; make the field that refers to it a union with null, "
                "an array or a map"
            )
        pending = left


def _has_value(avro_type: AvroType, finite: set[int]) -> bool:
    match avro_type:
        case Record():
            return id(avro_type) in finite
        case Union(branches):
            return any(_has_value(branch, finite) for branch in branches)
        case _:
            return True


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of a map: its key, then its value."""

    value: AvroType


def check_datum(payload: bytes, root: AvroType) -> int:
    """
    Check that *payload* begins with a datum of *root* that is safe to decode.

    Returns the number of bytes of the datum.

    Bounds: At most ``VALUES_MAX`` steps and one step for each byte; memory in
        proportion to the depth.

    Raises:
        InvalidPayload: The datum is cut short, nests deeper than
            ``VALUE_DEPTH_MAX``, or has too many values.
    """
    walk = _Walk(payload)
    walk.run(root)
    return walk.at


class _Walk:
    """A walk over the bytes of one datum without decoding it."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._values = 0
        self._empty_values = 0
        self.at = 0

    def run(self, root: AvroType) -> None:
        # A stack of what remains to be read: type, depth, and number of values.
        pending: list[tuple[AvroType | _Entry, int, int]] = [(root, 0, 1)]
        while pending:
            node, depth, count = pending.pop()
            if isinstance(node, Primitive | Fixed | Enum):
                self._skip(node, count)
                continue
            self._count(1)
            if count > 1:
                pending.append((node, depth, count - 1))
            match node:
                case Union(branches):
                    index = self._integer()
                    if not 0 <= index < len(branches):
                        raise _bad(f"a union has no branch {index}")
                    pending.append((branches[index], depth, 1))
                case Record(fields=fields):
                    inner = self._deeper(depth)
                    pending += [(each.type, inner, 1) for each in reversed(fields)]
                case Array(items):
                    items_count = self._block()
                    if items_count:
                        pending.append((node, depth, 1))
                        pending.append((items, self._deeper(depth), items_count))
                        self._expect(items, items_count)
                case Map(values):
                    entries = self._block()
                    if entries:
                        pending.append((node, depth, 1))
                        pending.append((_Entry(values), self._deeper(depth), entries))
                        self._expect(node, entries)
                case _Entry(value):
                    self._advance(self._integer())
                    pending.append((value, depth, 1))

    def _skip(self, node: Primitive | Fixed | Enum, count: int) -> None:
        """Skip *count* values that contain no other values."""
        self._count(count)
        width = node.size if isinstance(node, Fixed) else _WIDTHS.get(node.kind)
        if width is not None:
            self._advance(width * count)
            return
        has_length = node.kind in ("bytes", "string")
        is_decimal = node.kind == "bytes" and node != Primitive("bytes")
        for _ in range(count):
            number = self._integer()
            if is_decimal and number > DECIMAL_BYTES_MAX:
                raise _bad(
                    f"a decimal has {number} bytes; at most {DECIMAL_BYTES_MAX} are "
                    "allowed"
                )
            if has_length:
                self._advance(number)

    def _block(self) -> int:
        count = self._integer()
        if count < 0:
            count = -count
            # The size of the block in bytes, for readers that skip it.
            self._integer()
        return count

    def _expect(self, item: AvroType, count: int) -> None:
        """Refuse a block with more items than the remaining bytes can hold."""
        if _is_empty(item):
            self._empty_values += count
            if self._empty_values > EMPTY_VALUES_MAX:
                raise _bad(
                    f"an array has {count} items that take no bytes; at most "
                    f"{EMPTY_VALUES_MAX} in one datum are allowed"
                )
        elif count > len(self._payload) - self.at:
            raise _bad(
                f"a block has {count} items, more than the remaining bytes can hold"
            )

    def _deeper(self, depth: int) -> int:
        if depth >= VALUE_DEPTH_MAX:
            raise _bad(
                f"the datum nests deeper than {VALUE_DEPTH_MAX} records, arrays and "
                "maps"
            )
        return depth + 1

    def _count(self, count: int) -> None:
        self._values += count
        if self._values > VALUES_MAX:
            raise _bad(f"the datum has more than {VALUES_MAX} values")

    def _advance(self, count: int) -> None:
        self.at += count
        if count < 0 or self.at > len(self._payload):
            raise _bad("the datum is truncated")

    def _integer(self) -> int:
        payload, at = self._payload, self.at
        end = min(len(payload), at + _VARINT_BYTES_MAX)
        number = shift = 0
        while at < end:
            byte = payload[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at = at
                if number >= 1 << 64:
                    break
                return (number >> 1) ^ -(number & 1)
            shift += 7
        raise _bad("an integer is truncated or has more than 64 bits")


def _is_empty(item: AvroType) -> bool:
    """Return whether values of *item* take no bytes; such a type is not recursive."""
    match item:
        case Primitive(name):
            return name == "null"
        case Fixed(size=size):
            return size == 0
        case Record(fields=fields):
            return all(_is_empty(each.type) for each in fields)
        case _:
            return False


def _bad(reason: str) -> InvalidPayload:
    return InvalidPayload(f"not a datum of the Avro schema: {reason}")
