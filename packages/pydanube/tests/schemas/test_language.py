"""Batches, comparisons and nested values, as all schema languages treat them."""

from __future__ import annotations

from typing import Annotated

import pydantic
import pytest

from pydanube.model.errors import InvalidPayload
from pydanube.schemas.language import (
    DEPTH_MAX,
    INCOMPATIBILITIES_MAX,
    PARTS_MAX,
    REASON_LENGTH_MAX,
    ComparedPairs,
    Incompatibility,
    PartCounter,
    TooManyParts,
    convert_each,
    does_not_fit,
    error_text,
    find_bad_payloads,
    nested_values,
)


def reason(text):
    return Incompatibility(path="/", rule="rule", text=text)


def test_error_of_a_batch_has_the_index_and_the_reason():
    assert convert_each(["1", "2"], int, ValueError) == [1, 2]
    with pytest.raises(InvalidPayload, match="message 1 of the batch: invalid lit"):
        convert_each(["1", "x", "y"], int, ValueError)
    with pytest.raises(
        InvalidPayload, match="message 0 of the batch: 'x' does not fit"
    ):
        convert_each(["x"], int, ValueError, does_not_fit)


def test_bad_payloads_are_all_found():
    def read(payload):
        if payload.startswith(b"x"):
            raise InvalidPayload(payload.decode())

    assert find_bad_payloads([b"a", b"x1", b"b", b"x2"], read) == [(1, "x1"), (3, "x2")]


def must_be_short(name: str) -> str:
    raise ValueError("must be short")


class Part(pydantic.BaseModel):
    count: int
    name: Annotated[str, pydantic.AfterValidator(must_be_short)]


def test_text_of_a_pydantic_error_names_the_fields():
    with pytest.raises(pydantic.ValidationError) as caught:
        Part.model_validate({"count": [], "name": "long"})
    assert error_text(caught.value) == (
        "count: Input should be a valid integer; name: must be short"
    )


def test_text_of_an_error_is_short_and_on_one_line():
    assert error_text(ValueError("a\n  b")) == "a b"
    assert error_text(EOFError()) == "EOFError"
    assert len(error_text(ValueError("x" * 10_000))) == REASON_LENGTH_MAX


def test_reason_quotes_a_deeply_nested_value_by_its_type():
    value = []
    for _ in range(10_000):
        value = [value]
    assert does_not_fit(ValueError("no"), value).startswith("a deeply nested list")


def test_pair_counts_as_compatible_until_its_comparison_is_finished():
    compared = ComparedPairs()
    assumed = []

    def find():
        assumed.append(compared.compare("outer", find))
        return [reason("a"), reason("a")]

    for _ in range(2):
        assert compared.compare("outer", find) == [reason("a")]
    assert assumed == [[]]


def test_results_that_assumed_an_incompatible_pair_are_forgotten():
    compared = ComparedPairs()
    calls = []

    def find(pair):
        calls.append(pair)
        if pair == "outer":
            compared.compare("inner", lambda: find("inner"))
            return [reason("a")]
        return []

    for pair in ("first", "outer", "first", "outer", "inner"):
        compared.compare(pair, lambda pair=pair: find(pair))
    assert calls == ["first", "outer", "inner", "inner"]


def test_number_of_reasons_is_bounded():
    found = ComparedPairs().compare("pair", lambda: map(reason, map(str, range(5000))))
    assert len(found) == INCOMPATIBILITIES_MAX


def test_parts_and_depth_of_a_column_are_bounded():
    parts = PartCounter()
    with pytest.raises(TooManyParts):
        parts.add(DEPTH_MAX + 1)
    parts = PartCounter()
    for _ in range(PARTS_MAX):
        parts.add(DEPTH_MAX)
    with pytest.raises(TooManyParts):
        parts.add(0)


def test_nested_values_are_found_at_any_depth():
    deep = 1
    for _ in range(100_000):
        deep = [deep]
    assert 1 in list(nested_values({"a": (deep, 2)}))
