"""Downloads have all messages that fit, in bounded parts."""

import csv
import io
import json

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_cli.messages.message_fields import parse_fields
from pydanube_console.message_download import Download, DownloadForm, parse_form
from pydanube_console.message_search import MessageFilter
from support.worlds.current import memory_broker

TOPIC = "/default/t"


@pytest.fixture
async def client():
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(TOPIC) as producer:
            for number in range(3):
                payload = json.dumps({"id": number, "note": 'a "b",\n'}).encode()
                await producer.send(payload, key=f"k{number}", attributes={"a": "x"})
            await producer.send(b"\xff")
        yield client


async def content(client, **options):
    download = Download(topic=TOPIC, **options)
    return b"".join([part async for part in download.content(client)])


def rows_of(text):
    return list(csv.reader(io.StringIO(text.decode(), newline="")))


async def test_json_lines_are_those_of_danube_read(client):
    text = await content(client, form=DownloadForm.JSON_LINES)
    first, *_, last = map(json.loads, text.splitlines())
    assert (first["topic"], first["offset"], first["key"]) == (TOPIC, 0, "k0")
    assert json.loads(first["payload"])["id"] == 0
    assert last["payload_base64"] == "/w=="


async def test_csv_has_the_chosen_columns(client):
    text = await content(
        client, form=DownloadForm.CSV, start=1, fields=parse_fields("id, note")
    )
    head, *rows = rows_of(text)
    assert head == ["topic", "offset", "publish_time", "key", "id", "note"]
    assert [row[1:2] + row[3:] for row in rows] == [
        ["1", "k1", "1", 'a "b",\n'],
        ["2", "k2", "2", 'a "b",\n'],
        ["3", "", "", ""],
    ]


async def test_csv_without_columns_has_attributes_and_payload(client):
    wanted = MessageFilter(key="k2")
    text = await content(client, form=DownloadForm.CSV, wanted=wanted)
    [head, row] = rows_of(text)
    assert head[-2:] == ["attributes", "payload"]
    assert (row[-2], json.loads(row[-1])["id"]) == ('{"a":"x"}', 2)


def test_file_is_named_after_the_topic():
    download = Download(topic="/shop/orders", form=DownloadForm.CSV)
    assert download.file_name == "shop-orders.csv"
    assert parse_form("jsonl") is DownloadForm.JSON_LINES
    with pytest.raises(InvalidRequest, match="use jsonl or csv"):
        parse_form("xlsx")
