"""Tests of the source that counts."""

import asyncio

from pydanube_connect.sources.generator import Generator, GeneratorOptions


def batches(position=None, **options):
    async def collect():
        source = Generator(GeneratorOptions(**options))
        return [each async for each in source.batches(position)]

    return asyncio.run(collect())


def test_numbers_continue_at_the_position():
    found = batches(1998, count=2500)
    assert [each.position for each in found] == [2500]
    numbers = [record.value["number"] for each in found for record in each.records]
    assert numbers == list(range(1998, 2500))
    assert batches(2500, count=2500) == []


def test_keys_and_padding():
    [batch] = batches(count=3, keys=2, padding=4)
    assert [each.key for each in batch.records] == ["0", "1", "0"]
    assert batch.records[2].value == {"number": 2, "padding": "xxxx"}
