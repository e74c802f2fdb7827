import asyncio
import shutil

import pytest

from pydanube.model.errors import (
    InconsistentDirectory,
    InvalidRequest,
    ObjectsUnavailable,
)
from pydanube.objects.memory import MemoryObjects
from pydanube_broker.servers.directories.identity import MARKER_NAME, ClusterIdentity
from support.fakes.directories import (
    change_metadata,
    contents_of,
    copied,
    first_error,
    publish,
    serving,
)

pytestmark = pytest.mark.slow

TOPIC = "/default/t"


@pytest.fixture(scope="module")
def old_and_new(tmp_path_factory):
    """
    A data directory at two moments, and after a crash.

    ``old`` has three messages, ``new`` five more and one more topic.
    """
    base = tmp_path_factory.mktemp("directories")

    async def make():
        data = base / "data"
        async with serving(data) as client:
            await publish(client, TOPIC, b"0", b"1", b"2")
        copied(data, "old")
        async with serving(data) as client:
            await publish(client, TOPIC, b"3", b"4", b"5", b"6", b"7")
            await publish(client, "/default/later", b"0")
            copied(data, "crashed")
        data.rename(base / "new")

    asyncio.run(make())
    return base


@pytest.fixture
def directories(old_and_new, tmp_path):
    """Return a copy of the directories for one test."""
    return shutil.copytree(old_and_new, tmp_path / "copy")


def start(path, **settings):
    """Start a broker and return the number of messages in the topic."""

    async def run():
        async with serving(path, **settings) as client:
            return (await client.topics.describe(TOPIC)).end_offset

    return asyncio.run(run())


def refused(path):
    """Start a broker, which has to refuse; return the reason."""
    before = contents_of(path)
    with pytest.raises((BaseExceptionGroup, InconsistentDirectory)) as caught:
        start(path)
    error = first_error(caught.value)
    assert isinstance(error, InconsistentDirectory), error
    after = contents_of(path)
    # A journal file may end with reserved space, and may get more records.
    for name in before:
        if not name.startswith("metadata"):
            assert after[name].startswith(before[name].rstrip(b"\0")), name
    return str(error)


def put(part, source, target):
    """Replace *part* of the directory *target* by that of *source*."""
    for path in target.glob(f"{part}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in source.glob(f"{part}*"):
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, target / path.name)


def test_whole_directories_are_served(directories):
    assert start(directories / "old") == 3
    assert start(directories / "new") == 8
    assert start(directories / "crashed") == 8


@pytest.mark.parametrize("is_empty", [False, True])
def test_directory_without_its_metadata_store_is_refused(directories, is_empty):
    new = directories / "new"
    (new / "metadata.sqlite").unlink()
    if is_empty:
        (new / "metadata.sqlite").touch()
    reason = refused(new)
    assert "metadata.sqlite is missing or empty" in reason
    assert "danube recover" in reason
    assert "--from-segments" in reason


def test_metadata_store_without_its_wal_is_refused(directories):
    crashed = directories / "crashed"
    (crashed / "metadata.sqlite-wal").unlink()
    (crashed / "metadata.sqlite-shm").unlink()
    reason = refused(crashed)
    assert "is older than the journal" in reason
    assert "WAL" in reason


def test_older_metadata_store_is_refused(directories):
    put("metadata", directories / "old", directories / "new")
    assert "is older than the journal" in refused(directories / "new")


def test_directory_without_its_journal_is_refused(directories):
    new = directories / "new"
    shutil.rmtree(new / "journal")
    reason = refused(new)
    assert "there is no journal file" in reason
    assert "--accept-loss" in reason


def test_empty_journal_file_is_refused(directories):
    new = directories / "new"
    (new / "journal" / "00000000000000000001.journal").write_bytes(b"")
    assert "there is no journal file" in refused(new)


def test_older_journal_is_refused_with_file_and_position(directories):
    put("journal", directories / "old", directories / "new")
    reason = refused(directories / "new")
    assert "00000000000000000001.journal, position" in reason


def test_truncated_journal_is_refused(directories):
    (file,) = (directories / "new" / "journal").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert "data up to file 00000000000000000001" in refused(directories / "new")


def test_object_store_that_is_missing_is_refused(directories):
    shutil.rmtree(directories / "new" / "objects")
    assert "has no object .cluster.json" in refused(directories / "new")


def test_damaged_cluster_id_is_refused(directories):
    (directories / "new" / "objects" / ".cluster.json").write_bytes(b"")
    assert ".cluster.json is damaged" in refused(directories / "new")


@pytest.mark.parametrize("part", ["journal", "objects"])
def test_parts_of_another_cluster_are_refused(directories, tmp_path, part):
    assert refuses_foreign(directories, tmp_path, part)


def refuses_foreign(directories, tmp_path, part):
    async def make():
        async with serving(tmp_path / "other") as client:
            await publish(client, TOPIC, *[b"x"] * 20)

    asyncio.run(make())
    put(part, tmp_path / "other", directories / "new")
    return "belongs to cluster" in refused(directories / "new")


def test_topic_missing_in_the_metadata_does_not_count_as_deleted(directories):
    new = directories / "new"
    change_metadata(new, "DELETE FROM entries WHERE path = '/topics/default/t'")
    assert "the journal has the topic /default/t" in refused(new)


def test_metadata_without_its_cluster_id_is_refused(directories):
    new = directories / "new"
    change_metadata(new, "DELETE FROM entries WHERE path = '/cluster'")
    assert "has no cluster id, but there are journal files" in refused(new)


def test_interrupted_first_start_is_completed(directories):
    new = directories / "new"
    shutil.rmtree(new / "journal")
    shutil.rmtree(new / "objects")
    change_metadata(new, "DELETE FROM entries WHERE path != '/cluster'")

    async def publish_first():
        async with serving(new) as client:
            assert await publish(client, TOPIC, b"0") == [0]

    asyncio.run(publish_first())
    assert start(new) == 1


# The remote object store.

URL = "s3://bucket/prefix"
OURS, OTHER = "0" * 32, "1" * 32


def identity_of(cluster_id):
    return ClusterIdentity(
        directory=None,
        kind="local",
        recorded_kind=None,
        journal="",
        revision=0,
        cluster_id=cluster_id,
        journal_end=None,
        has_marker=True,
    )


async def claim(remote, cluster_id=OURS, *, has_uploads=False):
    await identity_of(cluster_id).claim_remote(remote, URL, has_uploads)


async def marker_of(remote):
    return bytes(await remote.read(MARKER_NAME))


async def test_new_store_is_marked_and_belongs_to_the_cluster_from_then_on():
    remote = MemoryObjects()
    await claim(remote)
    assert await marker_of(remote) == b'{"cluster_id":"%s"}' % OURS.encode()
    await claim(remote, has_uploads=True)


async def test_store_of_another_cluster_is_refused_and_not_changed():
    remote = MemoryObjects()
    await claim(remote, OTHER)
    before = await marker_of(remote)
    with pytest.raises(InconsistentDirectory, match=f"belongs to cluster {OTHER}"):
        await claim(remote)
    assert await marker_of(remote) == before


async def test_of_two_clusters_at_the_same_time_one_gets_the_store():
    class SlowObjects(MemoryObjects):
        async def put_if_absent(self, name, data):
            # Another cluster comes between the first request and this one.
            await MemoryObjects.put(self, name, b'{"cluster_id":"%s"}' % OTHER.encode())
            return await super().put_if_absent(name, data)

    with pytest.raises(InconsistentDirectory, match=f"belongs to cluster {OTHER}"):
        await claim(SlowObjects())


async def test_new_store_is_refused_if_segments_were_uploaded_to_another():
    remote = MemoryObjects()
    with pytest.raises(InconsistentDirectory, match="segments were uploaded before"):
        await claim(remote, has_uploads=True)
    assert await remote.names("") == []


async def test_store_without_put_if_absent_is_marked():
    class SimpleObjects(MemoryObjects):
        supports_put_if_absent = False

        async def put_if_absent(self, name, data):
            raise InvalidRequest("on purpose")

    remote = SimpleObjects()
    await claim(remote)
    with pytest.raises(InconsistentDirectory, match=f"belongs to cluster {OURS}"):
        await claim(remote, OTHER)


async def test_damaged_marker_is_refused():
    remote = MemoryObjects()
    await remote.put(MARKER_NAME, b"{")
    with pytest.raises(InconsistentDirectory, match="is damaged"):
        await claim(remote)


async def test_store_that_does_not_answer_is_not_claimed():
    class AbsentObjects(MemoryObjects):
        async def read(self, name, begin=0, end=None):
            raise ObjectsUnavailable("on purpose")

    with pytest.raises(ObjectsUnavailable):
        await claim(AbsentObjects())
