"""Numbers that mean the same producer or consumer for ever."""

from __future__ import annotations

from pydanube.model.ids import number_of, producer_id_of


def test_a_name_has_the_same_number_in_every_process():
    # Written down, because clients and stored messages outlive the code.
    assert producer_id_of("/default/orders", "p") == 4061998411768246
    assert number_of(("consumer", "/default/orders", "s", "c")) == 2374085498874913


def test_numbers_fit_where_clients_keep_them():
    numbers = {producer_id_of("/default/orders", str(n)) for n in range(10_000)}
    assert len(numbers) == 10_000
    assert all(0 < number < 2**53 for number in numbers)


def test_parts_of_a_name_are_not_joined():
    assert number_of(("consumer", "a", "bc")) != number_of(("consumer", "ab", "c"))
