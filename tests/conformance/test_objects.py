"""The contract of all implementations of Objects."""

import asyncio
import io
import json
import sys
import time

import pyarrow as pa
import pytest

from pydanube.model.errors import InvalidRequest, ObjectsUnavailable
from pydanube.objects.directory import DirectoryObjects
from pydanube.objects.memory import MemoryObjects
from pydanube.objects.opening import open_objects, open_url
from pydanube.wire.files.segment_checksums import is_refused_by_system
from support.servers.object_stores import SECRETS, WRONG_KEY, StoreServers
from support.servers.tcp_proxy import Fault, tcp_proxy

MIB = 1024 * 1024

LOCAL = ["memory", "directory"]
SOAK = [pytest.mark.slow, pytest.mark.soak]
# fake-gcs-server has no multipart uploads.
MULTIPART = [
    pytest.param("s3", marks=pytest.mark.slow),
    pytest.param("versitygw", marks=SOAK),
    pytest.param("azurite", marks=SOAK),
]
CLOUDS = [*MULTIPART, pytest.param("fake-gcs", marks=SOAK)]
REDIS = pytest.param("redis", marks=pytest.mark.slow)
REMOTE = [*CLOUDS, REDIS]


@pytest.fixture(scope="session")
def servers(tmp_path_factory):
    """Start servers of object stores when a test needs them."""
    with StoreServers(tmp_path_factory.mktemp) as servers:
        yield servers


def opened(request):
    """Open an empty store of the kind that is the parameter of a fixture."""
    if request.param == "memory":
        return MemoryObjects()
    if request.param == "directory":
        return DirectoryObjects(request.getfixturevalue("tmp_path") / "made" / "here")
    server = request.getfixturevalue("servers").get(request.param)
    return open_objects(*server.new_store())


@pytest.fixture(params=[*LOCAL, *REMOTE])
def objects(request):
    """Open an empty store of each kind."""
    return opened(request)


@pytest.fixture(params=[*LOCAL, *CLOUDS])
def listed(request):
    """Open an empty store of each kind that lists objects and has put-if-absent."""
    return opened(request)


@pytest.fixture(params=CLOUDS)
def cloud(request, servers):
    """Return the server of each kind of cloud store."""
    return servers.get(request.param)


@pytest.fixture(params=REMOTE)
def server(request, servers):
    """Return the server of each kind of remote store."""
    return servers.get(request.param)


@pytest.fixture
async def proxy(server):
    """Run a proxy in front of the server."""
    async with tcp_proxy(server.port) as proxy:
        yield proxy


async def read_file(objects, name):
    return await asyncio.to_thread(_read_file, objects, name)


def _read_file(objects, name):
    with objects.open(name) as file:
        return file.read()


async def test_an_object_is_read_back(objects):
    await objects.put("ns/topic/one", b"abc")
    assert await read_file(objects, "ns/topic/one") == b"abc"
    assert bytes(await objects.read("ns/topic/one")) == b"abc"


async def test_object_replaces_one_of_the_same_name(objects):
    await objects.put("a/one", b"abc")
    await objects.put("a/one", b"de")
    assert await read_file(objects, "a/one") == b"de"


async def test_an_object_may_be_empty(objects):
    await objects.put("a/one", b"")
    assert bytes(await objects.read("a/one")) == b""
    assert await read_file(objects, "a/one") == b""
    assert (await objects.stat("a/one")).byte_count == 0


async def test_an_object_may_be_an_arrow_buffer(objects):
    await objects.put("a/one", pa.py_buffer(b"abc"))
    assert bytes(await objects.read("a/one")) == b"abc"


async def test_an_object_is_written_in_pieces(objects):
    new = objects.new_object()
    with new.writing() as file:
        file.write(b"abc")
        file.write(b"de")
    with new.reading() as file:
        assert file.read() == b"abcde"
    await objects.put("a/one", b"an older one")
    await objects.put_new("a/one", new)
    new.discard()
    assert await read_file(objects, "a/one") == b"abcde"


def test_a_missing_object_cannot_be_opened(objects):
    with pytest.raises(FileNotFoundError, match="none"):
        objects.open("a/none")


async def test_a_missing_object_is_no_error_elsewhere(objects):
    assert await objects.read("a/none") is None
    assert await objects.read("a/none", 1, 2) is None
    assert await objects.read("a/none", 1) is None
    assert await objects.stat("a/none") is None
    await objects.delete("a/none")


@pytest.mark.parametrize(
    "name", ["a b/c d", "é/日本", "100%/%41%2f", "a+b&c=d;e/~'(x)!*"]
)
async def test_names_have_any_characters(objects, name):
    await objects.put(name, b"abc")
    assert bytes(await objects.read(name)) == b"abc"
    assert await read_file(objects, name) == b"abc"
    assert (await objects.stat(name)).byte_count == 3
    if objects.supports_listing:
        assert await objects.names("") == [name]
        assert await objects.names(name[:3]) == [name]
    await objects.delete(name)
    assert await objects.stat(name) is None


async def test_names_are_found_by_prefix(listed):
    for name in ("a/b/2", "a/b/1", "a/bc/3", "d/4"):
        await listed.put(name, b"x")
    assert await listed.names("a/b/") == ["a/b/1", "a/b/2"]
    assert await listed.names("a/b") == ["a/b/1", "a/b/2", "a/bc/3"]
    assert await listed.names("") == ["a/b/1", "a/b/2", "a/bc/3", "d/4"]
    assert await listed.names("nothing/here/") == []


async def test_a_deleted_object_is_gone_and_may_be_deleted_again(objects):
    await objects.put("a/one", b"abc")
    await objects.delete("a/one")
    await objects.delete("a/one")
    assert await objects.stat("a/one") is None
    assert await objects.read("a/one") is None


async def test_a_deleted_object_is_not_listed(listed):
    await listed.put("a/one", b"abc")
    await listed.delete("a/one")
    assert await listed.names("") == []


def test_an_object_has_a_url(objects):
    assert objects.url("a/one").endswith("/a/one")
    assert "://" in objects.url("a/one")


async def test_an_object_may_have_the_longest_names_of_namespace_and_topic(listed):
    name = f"{'n' * 255}/{'é' * 127}/{0:020d}-{1:020d}-1.parquet"
    await listed.put(name, b"abc")
    assert await listed.names(name[:-20]) == [name]
    await listed.delete(name)
    assert await listed.names("") == []


async def test_prefix_that_is_too_long_has_no_objects(listed):
    assert await listed.names(f"default/{'é' * 255}/") == []


async def test_an_object_has_the_time_at_which_it_was_stored(listed):
    before = time.time_ns() // 1000
    await listed.put("a/one", b"abc")
    # Stores round times down, by at most a second.
    found = await listed.stat("a/one")
    assert found.byte_count == 3
    assert before - 1_000_000 <= found.modified_at <= time.time_ns() // 1000


async def test_one_of_many_writers_stores_an_absent_object(listed):
    for at in range(20):
        name = f"race/{at}"
        async with asyncio.TaskGroup() as group:
            puts = [
                group.create_task(listed.put_if_absent(name, b"%d" % writer))
                for writer in range(12)
            ]
        outcomes = [each.result() for each in puts]
        assert outcomes.count(True) == 1
        assert bytes(await listed.read(name)) == b"%d" % outcomes.index(True)


async def test_put_if_absent_leaves_the_object_that_is_there(listed):
    await listed.put("a/one", b"abc")
    assert not await listed.put_if_absent("a/one", b"de")
    assert bytes(await listed.read("a/one")) == b"abc"


async def test_ranges_of_an_object_are_read(objects):
    await objects.put("a/one", b"abcdef")
    assert bytes(await objects.read("a/one")) == b"abcdef"
    assert bytes(await objects.read("a/one", 2, 4)) == b"cd"
    assert bytes(await objects.read("a/one", 2, 2)) == b""
    assert bytes(await objects.read("a/one", 4)) == b"ef"
    assert bytes(await objects.read("a/one", 4, 100)) == b"ef"
    assert bytes(await objects.read("a/one", 6, 100)) == b""
    assert bytes(await objects.read("a/one", 60, 100)) == b""


async def test_names_are_listed_in_pages(listed):
    for at in range(5):
        await listed.put(f"a/{at}", b"x")
    assert await listed.names("a/", count_max=2) == ["a/0", "a/1"]
    assert await listed.names("a/", after="a/1", count_max=2) == ["a/2", "a/3"]
    assert await listed.names("a/", after="a/4") == []
    assert await listed.names("a/", after="A", count_max=1) == ["a/0"]
    assert await listed.names("a/", after="a/1x") == ["a/2", "a/3", "a/4"]
    assert await listed.names("a/", count_max=0) == []


async def test_a_file_is_read_at_random(objects):
    await objects.put("a/one", b"abcdef")

    def check():
        with objects.open("a/one") as file:
            assert file.size() == 6
            assert file.read(2) == b"ab"
            assert file.tell() == 2
            assert file.seek(-1, io.SEEK_END) == 5
            assert file.read_buffer(10).to_pybytes() == b"f"
            assert file.read(1) == b""
            file.seek(1)
            target = bytearray(3)
            assert file.readinto(target) == 3
            assert target == b"bcd"
            assert file.readinto(bytearray(5)) == 2
            assert not file.closed
        assert file.closed
        with pytest.raises(ValueError, match="closed"):
            file.read()

    await asyncio.to_thread(check)


@pytest.mark.rotated
@pytest.mark.slow
@pytest.mark.parametrize("objects", [*LOCAL, *MULTIPART, REDIS], indirect=True)
async def test_large_objects_are_written_and_read_in_parts(objects):
    data = b"".join(at.to_bytes(4, "big") for at in range(5 * MIB + 7))
    await objects.put("a/large", data)
    assert (await objects.stat("a/large")).byte_count == len(data)
    assert await read_file(objects, "a/large") == data
    assert bytes(await objects.read("a/large")) == data
    begin = 3 * MIB + 5
    assert (
        bytes(await objects.read("a/large", begin, begin + 9 * MIB))
        == (data[begin : begin + 9 * MIB])
    )


@pytest.mark.slow
async def test_a_large_object_is_put_if_absent(listed):
    data = b"danube12" * (20 * MIB // 8)
    assert await listed.put_if_absent("a/large", data)
    assert not await listed.put_if_absent("a/large", b"other" + data)
    assert bytes(await listed.read("a/large")) == data


async def test_the_url_of_an_object_opens_it_elsewhere(server):
    url, options = server.new_store()
    objects = open_objects(url, options)
    await objects.put("a b/é%41?", b"abc")
    file = await asyncio.to_thread(open_url, objects.url("a b/é%41?"), options)
    assert await asyncio.to_thread(file.read) == b"abc"
    with pytest.raises(FileNotFoundError):
        await asyncio.to_thread(open_url, objects.url("none"), options)


FORKING = """
import json, os, sys
from pydanube.objects.opening import open_url

url, options, is_used = json.loads(sys.argv[1])
if is_used:
    open_url(url, options).close()
child = os.fork()
try:
    line = open_url(url, options).read().decode()
except OSError as error:
    line = f"{type(error).__name__} {error}"
# At once, because both processes write lines.
os.write(1, f"{line}\\n".encode())
if not child:
    os._exit(0)
os.waitpid(child, 0)
"""


async def test_forked_processes_open_objects_unless_their_parent_did(server):
    url, options = server.new_store()
    objects = open_objects(url, options)
    await objects.put("a", b"content")

    async def printed(is_used):
        argument = json.dumps([objects.url("a"), options, is_used])
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", FORKING, argument, stdout=asyncio.subprocess.PIPE
        )
        return sorted((await process.communicate())[0].decode().splitlines())

    assert await printed(is_used=False) == ["content", "content"]
    refused, content = await printed(is_used=True)
    assert refused.startswith("ChildProcessError this process was forked from one")
    assert content == "content"


@pytest.mark.parametrize("kind", [REDIS])
async def test_a_store_says_what_it_does_not_support(kind, servers):
    objects = open_objects(*servers.get(kind).new_store())
    assert not objects.supports_put_if_absent
    assert not objects.supports_listing
    with pytest.raises(InvalidRequest, match="cannot store an object only if"):
        await objects.put_if_absent("a", b"x")
    with pytest.raises(InvalidRequest, match="cannot list its objects"):
        await objects.names("")
    await objects.put("a", b"x")
    assert (await objects.stat("a")).modified_at is None


# Failures.


def check_message(error, expected):
    text = f"{error!r} {error} {error.__cause__} {error.__context__}"
    assert expected in text
    assert not any(secret in text for secret in SECRETS)


async def check_fails(objects, expected):
    """Check that each operation fails, with the *expected* text."""
    calls = [
        lambda: objects.put("a", b"x"),
        lambda: objects.read("a"),
        lambda: objects.read("a", 1, 2),
        lambda: objects.stat("a"),
    ]
    if objects.supports_listing:
        calls += [lambda: objects.names(""), lambda: objects.put_if_absent("a", b"x")]
    for call in calls:
        with pytest.raises(ObjectsUnavailable) as found:
            await call()
        check_message(found.value, expected)
    with pytest.raises(OSError, match="opening 'a' failed") as refused:
        await asyncio.to_thread(objects.open, "a")
    check_message(refused.value, expected)
    assert not isinstance(refused.value, FileNotFoundError)
    assert is_refused_by_system(refused.value)


@pytest.mark.slow
async def test_wrong_credentials_are_an_error_without_secrets(servers):
    s3 = servers.get("s3")
    with s3.checked_credentials():
        objects = open_objects(*s3.new_store(), retries=0)
        await check_fails(objects, "check the credentials")


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("kind", ["versitygw", "azurite"])
async def test_a_wrong_key_is_an_error_without_secrets(kind, servers):
    server = servers.get(kind)
    url, options = server.new_store()
    objects = open_objects(url, options | server.wrong, retries=0)
    await check_fails(objects, "check the credentials")


@pytest.mark.slow
async def test_a_wrong_password_is_an_error_without_secrets(servers):
    url, options = servers.get("redis").new_store()
    wrong = options | {"password": WRONG_KEY}
    # Redis' client repeats it for ten seconds before it says so.
    objects = open_objects(url, wrong, retries=0, timeout_s=1)
    with pytest.raises(ObjectsUnavailable) as found:
        await objects.read("a")
    check_message(found.value, "reading 'a' failed")


async def test_a_missing_bucket_is_an_error(cloud):
    url, options = cloud.new_store()
    wrong = url.replace("://danube", "://other-bucket")
    await check_fails(open_objects(wrong, options), "create the bucket or container")


async def test_a_store_may_go_away_and_come_back(server, proxy):
    # Redis' client tries for several seconds to connect again.
    objects = open_objects(*server.new_store(proxy.port), retries=0, timeout_s=1)
    await objects.put("a", b"abc")
    file = await asyncio.to_thread(objects.open, "a")
    proxy.fault = Fault.REFUSE
    proxy.cut()
    await check_fails(objects, "check the network and the store")
    with pytest.raises(OSError, match="reading 'a' failed") as away:
        await asyncio.to_thread(file.read)
    assert is_refused_by_system(away.value)
    proxy.fault = Fault.NONE
    assert bytes(await objects.read("a")) == b"abc"
    assert await asyncio.to_thread(file.read) == b"abc"


async def test_failed_requests_are_repeated(server, proxy):
    objects = open_objects(*server.new_store(proxy.port))
    proxy.fault, proxy.faults_max = Fault.REFUSE, 2
    await objects.put("a", b"abc")
    assert proxy.fault_count == 2
    proxy.fault, proxy.faults_max = Fault.LOSE_ANSWER, 3
    assert await read_file(objects, "a") == b"abc"
    assert proxy.fault_count == 3


async def test_a_put_whose_answer_is_lost_is_repeated(server, proxy):
    objects = open_objects(*server.new_store(proxy.port))
    proxy.fault, proxy.faults_max = Fault.LOSE_ANSWER, 1
    await objects.put("a", b"abc")
    assert bytes(await objects.read("a")) == b"abc"


@pytest.mark.parametrize(
    "byte_count", [3, pytest.param(20 * MIB, marks=pytest.mark.slow)]
)
async def test_put_if_absent_whose_answer_is_lost_is_not_repeated(cloud, byte_count):
    async with tcp_proxy(cloud.port) as proxy:
        objects = open_objects(*cloud.new_store(proxy.port))
        data = b"x" * byte_count
        proxy.fault, proxy.faults_max = Fault.LOSE_ANSWER, 1
        proxy.request_bytes_min = min(byte_count, MIB)
        with pytest.raises(ObjectsUnavailable, match="check the network"):
            await objects.put_if_absent("a", data)
        # A second attempt would have said that another writer stored it.
        assert proxy.fault_count == 1
        stored = await objects.read("a")
        assert stored is None or bytes(stored) == data
        assert await objects.put_if_absent("a", data) == (stored is None)


@pytest.mark.slow
@pytest.mark.parametrize("server", [*MULTIPART, REDIS], indirect=True)
async def test_parts_whose_answers_are_lost_are_repeated(server, proxy):
    objects = open_objects(*server.new_store(proxy.port))
    data = b"danube12" * (20 * MIB // 8)
    proxy.fault, proxy.faults_max = Fault.LOSE_ANSWER, 2
    await objects.put("a", data)
    assert proxy.fault_count == 2
    proxy.fault, proxy.faults_max = Fault.LOSE_ANSWER, 4
    assert await read_file(objects, "a") == data
    assert proxy.fault_count == 4


@pytest.mark.slow
async def test_a_store_that_does_not_answer_is_an_error(server, proxy):
    store = server.new_store(proxy.port)
    await open_objects(*store).put("a", b"abc")
    objects = open_objects(*store, retries=0, timeout_s=1)
    file = await asyncio.to_thread(objects.open, "a")
    proxy.fault = Fault.STALL
    with pytest.raises(ObjectsUnavailable, match="timeout reached"):
        await objects.read("a")
    with pytest.raises(ObjectsUnavailable, match="timeout reached"):
        await objects.put("b", b"x")
    with pytest.raises(TimeoutError, match="timeout reached") as slow:
        await asyncio.to_thread(file.read)
    assert is_refused_by_system(slow.value)


async def test_cancelled_requests_end(server, proxy):
    objects = open_objects(*server.new_store(proxy.port), concurrency=1)
    await objects.put("a", b"abc")
    proxy.fault = Fault.STALL
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(objects.read("a"))
        await proxy.wait_for_fault()
        reading.cancel()
    proxy.fault = Fault.NONE
    # The cancelled request does not occupy the only slot.
    assert bytes(await objects.read("a")) == b"abc"
