"""Checkpoints go to an object store and back as a whole, and nothing newer is lost."""

import json
import shutil

import pytest

pytest.importorskip("obstore")

from obstore.store import LocalStore, MemoryStore, S3Store

from pydanube.model.errors import (
    Conflict,
    Corrupt,
    InvalidConfig,
    NotFound,
    ObjectsUnavailable,
)
from pydanube.pipelines.checkpoints import CheckpointStore, checkpoint_store
from pydanube.pipelines.loading import load
from pydanube.pipelines.state import StateDirectory

ID = {"id": "6f1c"}


@pytest.fixture
def state(tmp_path):
    state = StateDirectory(tmp_path / "state")
    write(state, "q/metadata", json.dumps(ID))
    batch(state, 0)
    return state


def write(state, path, text):
    file = state.checkpoints / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def batch(state, number):
    write(state, f"q/offsets/{number}", f"offsets {number}")
    write(state, f"q/state/0/0/{number + 1}.delta", f"state {number}")
    write(state, f"q/commits/{number}", f"commit {number}")


def contents(state):
    root = state.checkpoints
    return {
        path.relative_to(root).as_posix(): path.read_text()
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def s3(monkeypatch):
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def store():
    return CheckpointStore(MemoryStore(), "p")


def test_what_is_pushed_is_pulled_elsewhere(state, store, tmp_path):
    before = contents(state)
    manifest = store.push(state, is_final=True)
    assert manifest.commits == {"q": 0}
    assert manifest.ids == {"q": "6f1c"}
    there = StateDirectory(tmp_path / "there")
    with there.locked("test"):
        store.pull(there)
    assert contents(there) == before


def test_a_file_system_is_an_object_store(state, tmp_path):
    (tmp_path / "remote").mkdir()
    store = CheckpointStore(LocalStore(tmp_path / "remote"), "p")
    store.push(state, is_final=True)
    batch(state, 1)
    assert store.push(state, is_final=True).generation == 1
    before = contents(state)
    shutil.rmtree(state.checkpoints)
    store.pull(state)
    assert contents(state) == before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_s3_is_an_object_store(state, s3, tmp_path):
    import httpx

    httpx.put(f"{s3}/bucket").raise_for_status()
    client = {"allow_http": True}
    config = {"endpoint": s3, "region": "us-east-1"}

    def open_store():
        store = S3Store("bucket", prefix="x/p", config=config, client_options=client)
        return CheckpointStore(store, "p")

    first, second = open_store(), open_store()
    first.push(state, is_final=True)
    batch(state, 1)
    assert second.push(state, is_final=True).generation == 1
    before = contents(state)
    shutil.rmtree(state.checkpoints)
    first.pull(state)
    assert contents(state) == before

    # Two that push at the same time: both have seen that generation 1 is the newest.
    newest = first.newest()
    second.newest = lambda: newest
    first.push(state, is_final=True)
    with pytest.raises(Conflict, match="somebody else pushed"):
        second.push(state, is_final=True)


def test_only_what_is_new_is_copied(state):
    counting = MemoryStore()
    store = CheckpointStore(counting, "p")
    store.push(state, is_final=True)
    names = store._objects()
    batch(state, 1)
    store.push(state, is_final=True)
    assert len(store._objects() - names) == 3


def test_a_snapshot_of_a_run_is_pulled_only_as_new_queries(state, store, tmp_path):
    store.push(state, is_final=False)
    there = StateDirectory(tmp_path / "there")
    with pytest.raises(Conflict, match="--at-least-once"):
        store.pull(there)
    store.pull(there, at_least_once=True)
    found = contents(there)
    identity = json.loads(found.pop("q/metadata"))
    assert identity.keys() == {"id"}
    assert identity != ID
    expected = contents(state)
    del expected["q/metadata"]
    assert found == expected


def test_newer_checkpoints_are_not_replaced_by_a_pull(state, store):
    store.push(state, is_final=True)
    batch(state, 1)
    with pytest.raises(Conflict, match="here are newer"):
        store.pull(state)
    assert "q/commits/1" in contents(state)
    store.pull(state, force=True)
    assert "q/commits/1" not in contents(state)


def test_checkpoints_of_other_queries_are_not_replaced(state, store):
    store.push(state, is_final=True)
    write(state, "q/metadata", '{"id": "other"}')
    for act in (store.pull, lambda state: store.push(state, is_final=True)):
        with pytest.raises(Conflict, match="of other queries"):
            act(state)


def test_newer_snapshots_are_not_followed_by_an_older_one(state, store):
    batch(state, 1)
    store.push(state, is_final=True)
    shutil.rmtree(state.checkpoints)
    with pytest.raises(Conflict, match="pull them first"):
        store.push(state, is_final=True)
    write(state, "q/metadata", json.dumps(ID))
    batch(state, 0)
    with pytest.raises(Conflict, match="newer than these"):
        store.push(state, is_final=True)
    store.push(state, is_final=True, force=True)
    assert store.newest().commits == {"q": 0}


def test_there_may_be_nothing_to_push_or_pull(tmp_path, store):
    empty = StateDirectory(tmp_path / "empty")
    with pytest.raises(NotFound, match="no checkpoints in"):
        store.push(empty, is_final=True)
    with pytest.raises(NotFound, match="object store has no checkpoints"):
        store.pull(empty)


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_a_snapshot_that_is_not_whole_changes_nothing(state, harm):
    import obstore

    objects = MemoryStore()
    store = CheckpointStore(objects, "p")
    manifest = store.push(state, is_final=True)
    name = f"objects/{manifest.files[0].digest}"
    if harm == "missing":
        obstore.delete(objects, name)
    else:
        obstore.put(objects, name, b"something else")
    before = contents(state)
    with pytest.raises(Corrupt, match=harm):
        store.pull(state)
    assert contents(state) == before


def test_a_pull_that_was_cut_off_when_it_was_whole_is_finished_later(state, store):
    store.push(state, is_final=True)
    before = contents(state)
    state.checkpoints.rename(state.pulled)
    write(state, "q/commits/9", "old")
    with state.locked("test"):
        assert contents(state) == before


def test_old_snapshots_go_and_young_objects_stay(state, store):
    for number in range(1, 6):
        batch(state, number)
        store.push(state, is_final=True)
    assert [each[-6:-5] for each in store._manifests()] == ["2", "3", "4"]
    assert store.newest().generation == 4
    assert len(store._objects()) == 19


def test_checkpoints_that_change_all_the_time_are_given_up(state, store):
    store._copy_file = lambda *_: (state.path / "gone").read_bytes()
    with pytest.raises(Conflict, match="faster"):
        store.push(state, is_final=True)


def pipeline(tmp_path, checkpoints):
    path = tmp_path / "p.yaml"
    path.write_text(
        "name: p\nsources: {a: {topic: /default/a}}\n"
        "sinks: {o: {input: a, format: noop}}\n"
        f"checkpoints: {json.dumps(checkpoints)}\n"
    )
    return load(path)


def test_the_file_says_where_they_go(state, tmp_path):
    words = {"remote": f"file://{tmp_path}/remote/"}
    checkpoint_store(pipeline(tmp_path, words)).push(state, is_final=True)
    assert (tmp_path / "remote/p/manifests/000000000000.json").exists()


def test_a_file_without_a_remote_is_told_what_is_missing(tmp_path):
    with pytest.raises(InvalidConfig, match=r"checkpoints\.remote is missing"):
        checkpoint_store(pipeline(tmp_path, {}))


def test_an_object_store_that_cannot_be_used_is_named(tmp_path):
    words = {"remote": "s3://bucket/x", "options": {"no_such_option": 1}}
    with pytest.raises(InvalidConfig, match=r"checkpoints\.remote: .*no_such_option"):
        checkpoint_store(pipeline(tmp_path, words))


def test_an_object_store_that_does_not_answer_is_named(state):
    store = S3Store(
        "bucket",
        config={
            "endpoint": "http://127.0.0.1:1",
            "region": "x",
            "access_key_id": "x",
            "secret_access_key": "x",
        },
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    with pytest.raises(ObjectsUnavailable, match="does not answer"):
        CheckpointStore(store, "p").push(state, is_final=True)
