"""Listeners, metadata stores, object stores and journals of other packages."""

import asyncio
import re
import shutil
import subprocess
import sys

import httpx
import pytest

from pydanube.model.errors import InvalidConfig
from pydanube.model.plugins import JOURNALS, OBJECTS, has_plugin, load_plugin
from pydanube.objects.opening import open_objects, open_url
from pydanube_broker.servers.run import serve
from pydanube_broker.servers.settings.config import config_type, load_config
from support.drivers.commands import environment
from support.fakes.directories import first_error, publish, serving
from support.project import ROOT

# The examples of the guide.
STORE, JOURNAL, CENSUS, COMMAND_SET = re.findall(
    r"^```python\n(.*?)^```",
    (ROOT / "docs/guide/plugins.md").read_text(),
    re.MULTILINE | re.DOTALL,
)


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Return a function that installs a package with entry points."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    made = []

    def install(name, code, **points):
        (site / f"{name}.py").write_text(code)
        information = site / f"{name}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
        lines = [f"[danube.{group}]\n{point}\n" for group, point in points.items()]
        (information / "entry_points.txt").write_text("".join(lines))
        made.append(name)

    yield install
    for name in made:
        sys.modules.pop(name, None)


async def test_store_of_another_package_has_its_own_scheme(packages, tmp_path):
    packages("shelf", STORE, objects="shelf = shelf:open_store")
    options = {"base": str(tmp_path)}
    objects = open_objects("shelf://books", options)
    await objects.put("a", b"123")
    assert (tmp_path / "books" / "a").read_bytes() == b"123"
    with open_url("shelf://books/a", options) as file:
        assert file.read() == b"123"


def test_schemes_that_are_built_in_cannot_be_replaced(packages, tmp_path):
    packages("shelf", STORE, objects="fs = shelf:open_store")
    assert has_plugin(OBJECTS, "fs")
    assert open_objects(f"fs://{tmp_path}").url("a") == f"file://{tmp_path}/a"


def test_unknown_scheme_is_refused():
    with pytest.raises(InvalidConfig, match="expected shelf:///PREFIX"):
        open_objects("shelf://books")


def test_two_packages_cannot_have_the_same_name(packages):
    packages("one", STORE, objects="shelf = one:open_store")
    packages("other", STORE, objects="shelf = other:open_store")
    with pytest.raises(InvalidConfig, match="the packages one, other declare"):
        load_plugin(OBJECTS, "shelf")


@pytest.mark.parametrize("target", ["absent:open_store", "shelf:absent"])
def test_package_that_cannot_be_loaded_is_named(packages, target):
    packages("shelf", STORE, objects=f"shelf = {target}")
    with pytest.raises(InvalidConfig, match="of the package shelf cannot be loaded"):
        load_plugin(OBJECTS, "shelf")


def test_missing_package_is_an_error():
    with pytest.raises(InvalidConfig, match=r"'shelf' in the group danube\.journals"):
        load_plugin(JOURNALS, "shelf")


@pytest.fixture
def census(packages):
    """Install the listener of the guide."""
    packages("census", CENSUS, listeners="census = census:CensusConfig")
    config_type.cache_clear()
    yield
    config_type.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("census")
async def test_listener_of_another_package_serves_at_its_port(tmp_path):
    ports = dict.fromkeys(
        (f"listen.{name}_port" for name in ("stream", "grpc", "admin", "http")), 0
    )
    environ = {"DANUBE_CENSUS__GREETING": "we have"}
    given = {"data_dir": tmp_path / "data", "census.port": 0, **ports}
    async with serve(load_config(None, environ, given)) as running:
        (url,) = running.listener_urls.values()
        assert url.startswith("census://127.0.0.1:")
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(url.rpartition(":")[2])
        )
        assert await reader.read() == b"we have 0\n"
        writer.close()
        async with httpx.AsyncClient(base_url=running.http_url) as http:
            assert f"{url}  the census of topics." in (await http.get("/")).text
            metrics = (await http.get("/metrics")).text
    assert 'danube_listener_connections{listener="census"} 0.0' in metrics


@pytest.mark.usefixtures("census")
def test_listener_of_another_package_is_refused_in_a_cluster():
    given = {
        "metadata.kind": "etcd",
        "metadata.etcd.endpoints": "http://e:2379",
        "storage.journal.kind": "object",
        "storage.remote.url": "s3://bucket",
        "cluster.enabled": True,
        "census.port": 1890,
    }
    with pytest.raises(InvalidConfig, match=r"census\.port: expected nothing"):
        load_config(None, {}, given)


def test_settings_of_a_listener_that_is_not_installed_are_refused():
    with pytest.raises(InvalidConfig, match="unknown setting 'census'"):
        load_config(None, {}, {"census.port": 0})


STORE_IN_MEMORY = """
from contextlib import asynccontextmanager
from typing import ClassVar
from pydanube_broker.metadata.remote_config import RemoteStoreConfig
from support.fakes.memory_store import MemoryStore

class Shelf(MemoryStore):
    def guard(self, session, key, revision):
        pass

class ShelfConfig(RemoteStoreConfig, frozen=True, kw_only=True):
    KIND: ClassVar[str] = "shelf"
    SERVICE: ClassVar[str] = "Shelf"
    EXAMPLE: ClassVar[str] = "a:1"

    @asynccontextmanager
    async def open_store(self):
        yield Shelf()
"""


@pytest.mark.slow
async def test_metadata_is_where_the_plug_in_of_its_kind_says(packages, tmp_path):
    packages("shelf", STORE_IN_MEMORY, metadata="shelf = shelf:ShelfConfig")
    config_type.cache_clear()
    settings = {"metadata__kind": "shelf", "metadata__shelf__endpoints": "a:1"}
    try:
        async with serving(tmp_path / "data", **settings) as client:
            assert await publish(client, "/default/t", b"0") == [0]
    finally:
        config_type.cache_clear()
    assert not (tmp_path / "data" / "metadata.sqlite").exists()


@pytest.mark.slow
async def test_broker_keeps_its_journal_where_another_package_says(packages, tmp_path):
    packages("shelf", JOURNAL, journals="shelf = shelf:open_journal")
    (tmp_path / "metadata").mkdir()
    settings = {
        "metadata__path": str(tmp_path / "metadata" / "metadata.sqlite"),
        "storage__remote__url": f"fs://{tmp_path}/store",
        "storage__journal__kind": "shelf",
        "storage__journal__options": {"directory": str(tmp_path / "journal")},
    }
    async with serving(tmp_path / "first", **settings) as client:
        await publish(client, "/default/t", b"0", b"1")
        status = await client.storage.describe()
        assert (status.journal_kind, status.journal_url) == ("shelf", "shelf:")
    shutil.rmtree(tmp_path / "first")
    async with serving(tmp_path / "second", **settings) as client:
        assert await publish(client, "/default/t", b"2") == [2]
    # The kind can be changed, as that of built-in ones.
    local = settings | {"storage__journal__kind": "local"}
    async with serving(tmp_path / "second", **local) as client:
        assert await publish(client, "/default/t", b"3") == [3]


@pytest.mark.slow
async def test_unknown_kind_of_journal_is_refused(tmp_path):
    settings = {
        "storage__remote__url": f"fs://{tmp_path}/store",
        "storage__journal__kind": "shelf",
    }
    with pytest.raises((BaseExceptionGroup, InvalidConfig)) as caught:
        async with serving(tmp_path / "data", **settings):
            pass
    error = first_error(caught.value)
    assert isinstance(error, InvalidConfig)
    assert "there is no kind 'shelf'; use local, object, redis" in str(error)


COUNT_TOPICS = """
import typer
from pydanube_cli.invocation.declaration import command

app = typer.Typer()

@command(app, "danube count-topics")
def count_topics() -> None:
    '''Count the topics of a broker.'''
    typer.echo("There are 12.")
"""


def test_command_of_another_package_is_listed_and_run(packages, tmp_path):
    packages("census", COMMAND_SET, commands="census = census:COMMANDS")
    commands = tmp_path / "site" / "census_commands"
    commands.mkdir()
    (commands / "count_topics.py").write_text(COUNT_TOPICS)
    danube = environment() | {"PYTHONPATH": str(tmp_path / "site")}

    def run(*arguments):
        line = [sys.executable, "-m", "pydanube_cli", *arguments]
        done = subprocess.run(
            line, env=danube, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed = run("--help")
    assert re.search(
        r"^Census:\n  count-topics +Count the topics", listed, re.MULTILINE
    )
    assert "$ danube count-topics" in run("count-topics", "--help")
    assert run("count-topics") == "There are 12.\n"
