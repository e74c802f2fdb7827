"""Stable ids of producers and consumers."""

from __future__ import annotations

from pydanube.model.ids import producer_id_of, stable_id


def test_stable_id_is_the_same_in_every_process():
    # A literal, because clients and stored messages contain these numbers.
    assert producer_id_of("/default/orders", "p") == 4061998411768246
    assert stable_id(("consumer", "/default/orders", "s", "c")) == 2374085498874913


def test_stable_ids_fit_53_bits():
    numbers = {producer_id_of("/default/orders", str(n)) for n in range(10_000)}
    assert len(numbers) == 10_000
    assert all(0 < number < 2**53 for number in numbers)


def test_stable_id_separates_the_parts_of_a_name():
    assert stable_id(("consumer", "a", "bc")) != stable_id(("consumer", "ab", "c"))
