"""New items of a web server's answers are published once."""

import asyncio
import json
from contextlib import aclosing

import pytest

pytest.importorskip("httpx")

from pydanube_connect.pure.failures import ConnectorFailed, Transient
from pydanube_connect.sources.http import HttpSource, HttpSourceOptions
from support.drivers.connectors import read_records
from support.servers.http_server import Answer, Broken, LocalServer


class Api:
    """A web server with items, some on each page, the newest first."""

    def __init__(self, page_size=1000):
        self.items = []
        self.status = 200
        self._page_size = page_size

    def add(self, *ids):
        self.items += [{"id": each} for each in ids]

    def answer(self, request):
        since = int(request.query.get("since", -1))
        page = int(request.query.get("page", 0))
        newest = [each for each in reversed(self.items) if each["id"] > since]
        start = page * self._page_size
        headers = {}
        if start + self._page_size < len(newest):
            headers["Link"] = f'</items?page={page + 1}>; rel="next"'
        found = {"data": {"items": newest[start : start + self._page_size]}}
        return Answer(self.status, json.dumps(found).encode(), headers)


async def read(server, count, position=None, **options):
    """The first *count* items after *position*, and the position after them."""
    given = {"url": f"{server.url}/items", "poll": "1ms", **options}
    source = HttpSource(HttpSourceOptions(**given))
    records, position = await read_records(source, count, position)
    return [each.value for each in records], position


CURSOR = {"items": "data.items", "cursor": "id"}


@pytest.mark.parametrize("page_size", [1000, 3])
async def test_new_items_are_published_in_the_order_of_the_cursor(page_size):
    api = Api(page_size)
    api.add(*range(10))
    with LocalServer(api.answer) as server:
        found, position = await read(server, 10, **CURSOR)
        assert [each["id"] for each in found] == list(range(10))
        api.add(10, 11, 12, 13)
        found, position = await read(server, 4, position, **CURSOR)
        assert [each["id"] for each in found] == [10, 11, 12, 13]
        api.add(14)
        found, _ = await read(server, 1, position, parameter="since", **CURSOR)
        assert found == [{"id": 14}]
        assert server.requests[-1].query == {"since": "13"}


async def test_many_items_are_split_but_not_between_equal_values():
    api = Api(5000)
    api.add(*range(999), *[999] * 5, *range(1000, 1500))
    with LocalServer(api.answer) as server:
        found, position = await read(server, 1, **CURSOR)
        assert (len(found), position) == (1004, 999)
        found, position = await read(server, 1, position, **CURSOR)
        assert (len(found), position) == (500, 1499)


async def test_without_a_cursor_an_answer_is_published_when_it_changes():
    answers = [b'[{"a": 1}]', b'[{"a": 1}]', b'{"a": 2}']

    def answer(_):
        return Answer(200, answers.pop(0) if len(answers) > 1 else answers[0])

    with LocalServer(answer) as server:
        found, position = await read(server, 2)
        assert found == [{"a": 1}, {"a": 2}]
        answers[:] = [b'{"a": 2}', b'{"a": 3}']
        found, _ = await read(server, 1, position)
        assert found == [{"a": 3}]


@pytest.mark.parametrize(
    ("answer", "options", "error", "text"),
    [
        (Answer(503, b"later"), {}, Transient, "503: later"),
        (Answer(429), {}, Transient, "429"),
        (Answer(404, b"no such page"), {}, ConnectorFailed, "404: no such page"),
        (Answer(200, b"<html>"), {}, Transient, "no JSON"),
        (Answer(200, b"{}"), {"items": "data"}, ConnectorFailed, "has no 'data'"),
        (Answer(200, b'[{"x": 1}]'), {"cursor": "id"}, ConnectorFailed, "in 'id'"),
        (
            Answer(200, b"x" * 2000),
            {"answer_bytes_max": "1KiB"},
            ConnectorFailed,
            "1KiB",
        ),
        (
            Answer(200, b'[{"id": 1}]', {"Link": '<http://other/>; rel="next"'}),
            {"cursor": "id"},
            ConnectorFailed,
            "another server",
        ),
    ],
)
async def test_other_answers_are_errors(answer, options, error, text):
    with LocalServer(lambda _: answer) as server, pytest.raises(error, match=text):
        await read(server, 1, **options)


async def test_items_that_cannot_be_compared_are_reported_once_and_others_are_read():
    items = b'[{"id": 1}, {"id": "a"}, {}, 5, {"id": null}, {"id": 2}, {"id": 1}]'
    with LocalServer(lambda _: Answer(200, items)) as server:
        options = HttpSourceOptions(url=server.url, poll="1ms", cursor="id")
        batches = HttpSource(options).batches(None)
        async with asyncio.timeout(30), aclosing(batches):
            good = await anext(batches)
            bad = await anext(batches)
            assert [each.value["id"] for each in good.records] == [1, 1, 2]
            values = [each.value for each in bad.records]
            assert values == [{"id": "a"}, {}, 5, {"id": None}]
            assert all(each.problem for each in bad.records)
            # They are not reported with the next answers.
            items = b'[{}, {"id": 3}]'
            assert [each.value async for each in _first(batches)] == [{"id": 3}]


async def _first(batches):
    for each in (await anext(batches)).records:
        yield each


async def test_half_a_character_concerns_its_item_only():
    answer = Answer(200, b'[{"id": 1, "x": "\\ud800"}, {"id": 2}]')
    with LocalServer(lambda _: answer) as server:
        found, _ = await read(server, 2, cursor="id")
    assert [each["id"] for each in found] == [1, 2]


async def test_a_server_that_breaks_off_is_asked_again_later():
    with (
        LocalServer(lambda _: Broken.BEFORE) as server,
        pytest.raises(Transient, match="no answer"),
    ):
        await read(server, 1)


async def test_a_server_that_is_busy_says_how_long_to_wait():
    with (
        LocalServer(lambda _: Answer(429, b"", {"retry-after": "7"})) as server,
        pytest.raises(Transient, match="429") as raised,
    ):
        await read(server, 1)
    assert raised.value.retry_after_s == 7
