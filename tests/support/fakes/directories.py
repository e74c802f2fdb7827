"""Data directories of complete brokers, and brokers over them in this process."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import asynccontextmanager

import pydanube
from pydanube_broker.servers.run import serve
from pydanube_broker.servers.settings.config import load_config

PORTS = {
    f"listen.{listener}_port": 0 for listener in ("stream", "grpc", "admin", "http")
}


@asynccontextmanager
async def served(path, **settings):
    """The address of a broker over the data directory *path*."""
    named = {name.replace("__", "."): value for name, value in settings.items()}
    config = load_config(None, {}, {"data_dir": path, **PORTS, **named})
    async with serve(config) as running:
        yield running.stream_url


@asynccontextmanager
async def serving(path, **settings):
    """A client of a broker over the data directory *path*."""
    async with served(path, **settings) as url, pydanube.connect(url) as client:
        yield client


async def publish(client, topic, *payloads):
    """Publish and return the offsets."""
    async with client.producer(topic) as producer:
        return [(await producer.send(payload)).offset for payload in payloads]


def first_error(error):
    """The first error in nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def contents_of(path):
    """Every file below *path* and its bytes, apart from what each start changes."""
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in sorted(path.rglob("*"))
        if each.is_file() and each.name not in ("LOCK", "metadata.sqlite-shm")
    }


def copied(path, name):
    """A copy of the directory *path* as a crash at this moment would leave it."""
    copy = path.with_name(name)
    shutil.copytree(path, copy)
    return copy


def change_metadata(path, *statements):
    """Change the metadata store of *path* behind the broker's back."""
    store = sqlite3.connect(path / "metadata.sqlite")
    with store:
        for statement in statements:
            store.execute(statement)
    store.close()
