"""Lazy dataclasses behave as those of the standard library, and compile less."""

import copy
import dataclasses
import inspect
import itertools
import pickle
import subprocess
import sys
import typing

import pytest

from pydanube.model.lazy_dataclasses import LazyInit, dataclass

MADE = {"standard": dataclasses.dataclass, "lazy": dataclass}
FLAGS = [
    dict(zip(("frozen", "slots", "kw_only"), each, strict=True))
    for each in itertools.product((False, True), repeat=3)
]


def twins(declare):
    """Return what *declare* makes of each decorator."""
    return [declare(each) for each in MADE.values()]


def declare_shape(flags):
    def declare(decorator):
        @decorator(**flags)
        class Shape:
            """A shape."""

            kinds: typing.ClassVar[int] = 7
            name: str
            size: int = 3
            parts: list[int] = dataclasses.field(default_factory=list)
            hidden: str = dataclasses.field(default="h", repr=False)
            free: int = dataclasses.field(default=0, compare=False)
            only: str = dataclasses.field(default="o", kw_only=True)
            counted: int = dataclasses.field(init=False, default=9)
            made: dict[str, int] = dataclasses.field(init=False, default_factory=dict)

        return Shape

    return declare


def outcome(call):
    """Return the value of *call*, or the type and the text of its error."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001
        return type(error), str(error)


@pytest.mark.parametrize("flags", FLAGS, ids=str)
def test_values_are_those_of_the_standard_library(flags):
    seen = []
    for shape in twins(declare_shape(flags)):
        one, same = shape(name="a"), shape(name="a", free=5)
        other = shape(name="a", parts=[1], only="x")
        seen.append(
            [
                repr(other),
                one == same,
                one == other,
                one == "a",
                one.parts is same.parts,
                dataclasses.asdict(other),
                dataclasses.replace(one, name="b", hidden="c") == one,
                shape.__match_args__,
                shape.__doc__,
                shape.kinds,
                str(inspect.signature(shape)),
                shape.__init__.__annotations__,
                shape.__init__.__qualname__,
                hasattr(one, "__dict__"),
                outcome(lambda shape=shape: shape("a", 4, [2])).__repr__(),
                outcome(shape),
                outcome(lambda shape=shape: shape(name="a", unknown=1)),
                outcome(lambda one=one: hash(one)),
                outcome(lambda one=one: setattr(one, "size", 4)),
                one.size,
                copy.deepcopy(other) == other,
            ]
        )
    assert seen[0] == seen[1]


@pytest.mark.parametrize("flags", FLAGS[:4], ids=str)
def test_frozen_values_are_hashed_and_kept(flags):
    def declare(decorator):
        @decorator(**(flags | {"frozen": True}), order=True)
        class Pair:
            left: int
            right: float = 0.5

            def __post_init__(self):
                if self.left < 0:
                    raise ValueError(f"left is {self.left}")

        return Pair

    seen = []
    for pair in twins(declare):
        low, high = pair(left=1), pair(left=1, right=2.0)
        seen.append(
            [
                hash(low) == hash((1, 0.5)),
                (low < high, low <= high, low > high, high >= low),
                outcome(lambda low=low: low < 3)[0],
                outcome(lambda pair=pair: pair(left=-1)),
                outcome(lambda low=low: delattr(low, "left")),
                outcome(lambda low=low: setattr(low, "right", 3.0)),
                {low, pair(left=1)} == {low},
                copy.copy(high) == high,
            ]
        )
    assert seen[0] == seen[1]


def test_methods_of_a_class_stay():
    @dataclass(frozen=True, slots=True)
    class Named:  # noqa: PLW1641  # The decorator adds it.
        name: str

        def __eq__(self, other):
            return True

        def __repr__(self):
            return "me"

    assert Named("a") == Named("b")
    assert (repr(Named("a")), hash(Named("a"))) == ("me", hash(("a",)))

    @dataclass
    class Counted:
        number: int

        def __init__(self):
            self.number = 4

        def __hash__(self):
            return 5

    assert (Counted().number, hash(Counted())) == (4, 5)


def test_not_a_number_equals_itself_as_in_tuples():
    @dataclass
    class One:
        value: float

    nan = float("nan")
    assert One(nan) == One(nan)
    assert One(nan) != One(float("nan"))


@dataclass(frozen=True, slots=True)
class Base:
    name: str


@dataclass(frozen=True, slots=True)
class Derived(Base):
    size: int = 1

    def doubled(self):
        return self.size * 2


class Plain(Derived):
    """Not a dataclass itself."""


def test_derived_classes_have_the_fields_of_their_base():
    # The class that declares nothing of its own is the first to be instantiated.
    plain = Plain("a", 4)
    assert (plain.name, plain.doubled()) == ("a", 8)
    assert "__init__" not in vars(Plain)
    assert Derived("a", 2) != Base("a")
    assert repr(Derived("a", 2)) == "Derived(name='a', size=2)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        Derived("a").name = "b"
    assert pickle.loads(pickle.dumps(Derived("a", 3))) == Derived("a", 3)


@dataclasses.dataclass(frozen=True)
class OfUser(Base):
    """A class of a user, who does not know about this decorator."""

    size: int = 1


def test_frozen_classes_can_be_derived_with_the_standard_library():
    one = OfUser("a", 2)
    assert repr(one) == "OfUser(name='a', size=2)"
    for same in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert same == one
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.name = "b"
    with pytest.raises(TypeError, match="cannot inherit non-frozen"):

        @dataclasses.dataclass
        class Changing(Base):
            size: int = 1

    with pytest.raises(TypeError, match="cannot inherit non-frozen"):

        @dataclass
        class Variable(Base):
            size: int = 1


def test_cyclic_values_are_shown():
    @dataclass
    class Node:
        next: object = None

    node = Node()
    node.next = node
    assert repr(node).endswith("Node(next=...)")


def test_first_instance_compiles_the_method():
    @dataclass
    class One:
        value: int

    lazy = vars(One)["__init__"]
    assert isinstance(lazy, LazyInit)
    assert One(3).value == 3
    assert inspect.isfunction(vars(One)["__init__"])
    # Another thread may have found it before.
    late = One.__new__(One)
    lazy.__get__(late, One)(4)
    assert late == One(4)


EAGER = """
import sys
import pydanube_broker.servers.run, pydanube.client.client, pydanube_cli.main
eager = {
    f"{each.__module__}.{each.__qualname__}"
    for name, module in list(sys.modules.items())
    if name.startswith("pydanube")
    for each in vars(module).values()
    if isinstance(each, type) and each.__module__ == name
    if "__dataclass_params__" in vars(each) and each.__dataclass_params__.init
}
print(*sorted(eager))
"""


@pytest.mark.slow
def test_brokers_and_clients_start_with_few_dataclasses_of_the_standard_library():
    done = subprocess.run(
        [sys.executable, "-c", EAGER], check=True, capture_output=True, text=True
    )
    # There are more than three hundred dataclasses in all.
    assert len(done.stdout.split()) <= 20, done.stdout
