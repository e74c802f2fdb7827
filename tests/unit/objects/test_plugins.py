"""Object stores and journals of other packages."""

import re
import shutil
import sys

import pytest

from pydanube.model.errors import InvalidConfig
from pydanube.objects.opening import open_objects, open_url
from pydanube.objects.plugins import JOURNALS, OBJECTS, has_plugin, load_plugin
from support.directories import first_error, publish, serving
from support.project import ROOT

# The examples of the guide.
STORE, JOURNAL = re.findall(
    r"^```python\n(.*?)^```",
    (ROOT / "docs/guide/storage-plugins.md").read_text(),
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
        lines = [f"[pydanube.{group}]\n{point}\n" for group, point in points.items()]
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
    with pytest.raises(InvalidConfig, match=r"'shelf' in the group pydanube\.journals"):
        load_plugin(JOURNALS, "shelf")


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
        status = await client.describe_storage()
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
