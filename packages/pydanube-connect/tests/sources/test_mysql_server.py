"""Tests of what is read of a MySQL server, without one."""

from types import SimpleNamespace

import pytest

pytest.importorskip("pymysqlreplication")

import pymysqlreplication
from pymysqlreplication import event as events
from pymysqlreplication import row_event as rows

from pydanube_connect.pure.failures import ConnectorFailed
from pydanube_connect.sources.mysql_options import MysqlOptions
from pydanube_connect.sources.mysql_server import Begin, LogStream, Server

OPTIONS = MysqlOptions(host="h", username="u", tables={"shop.orders": None})
FITTING = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "gtid_mode": "ON",
}


class KnownServer(Server):
    """A server with these settings."""

    def __init__(self, **settings):
        self.settings = FITTING | settings
        self.is_mariadb = self.has_lower_case = False

    async def query(self, statement, *arguments):
        return [each for each in self.settings.items() if repr(each[0]) in statement]


@pytest.mark.parametrize(
    ("name", "value", "off"),
    [
        ("log_bin_compress", "ON", "OFF"),
        ("binlog_transaction_compression", "ON", "OFF"),
        ("binlog_row_value_options", "PARTIAL_JSON", ""),
    ],
)
async def test_settings_that_hide_changes_are_refused(name, value, off):
    await KnownServer().check()
    await KnownServer(**{name: off}).check()
    with pytest.raises(ConnectorFailed, match=f"{name} = {value}, which cannot"):
        await KnownServer(**{name: value}).check()


def event_of(kind, **fields):
    found = object.__new__(kind)
    found.__dict__ |= fields
    return found


UNREADABLE = {
    "of MariaDB": event_of(events.NotImplementedEvent, event_type=169),
    "of MySQL": event_of(events.NotImplementedEvent, event_type=40),
    "partial": event_of(rows.PartialUpdateRowsEvent, schema="shop", table="orders"),
}


async def read_to_error(stream, found):
    while True:
        event = stream.receive_nowait()
        if event is None:
            await stream.wait()
        else:
            found.append(event)


@pytest.mark.parametrize("name", UNREADABLE)
async def test_changes_that_cannot_be_read_are_not_left_out(name, monkeypatch):
    given = [
        event_of(events.NotImplementedEvent, event_type=26),
        event_of(rows.PartialUpdateRowsEvent, schema="shop", table="other"),
        event_of(events.GtidEvent, gtid="g", timestamp=1),
        UNREADABLE[name],
    ]

    def reader(*_, only_events, filter_non_implemented_events=True, **__):
        assert not filter_non_implemented_events
        # The library yields events of these classes only.
        return iter([each for each in given if type(each) in only_events])

    monkeypatch.setattr(pymysqlreplication, "BinLogStreamReader", reader)
    monkeypatch.setattr(events.GtidEvent, "gtid", "g")
    server = SimpleNamespace(is_mariadb=False, has_lower_case=False)
    stream = LogStream(OPTIONS, "", server, {("shop", "orders")})
    found = []
    try:
        with pytest.raises(ConnectorFailed, match="which cannot be read"):
            await read_to_error(stream, found)
    finally:
        stream.close()
    assert found == [Begin("g", 1)]
