"""
Checkpoints to an object store and back.

    <remote>/<pipeline>/objects/<sha-256>          a file of a checkpoint
    <remote>/<pipeline>/manifests/<generation>.json   a snapshot: which files it has

A manifest is written last and never changed, so a snapshot is there as a whole or not
at all, and of two that push at once one is refused.  What a snapshot that was taken
during a run does not know is how far sinks have come since: they would take other rows
for a repetition of a batch they know.  Such a snapshot is only pulled if the queries
get new identities, which repeats rows and loses none.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pydanube.model.errors import (
    Conflict,
    Corrupt,
    InvalidConfig,
    NotFound,
    ObjectsUnavailable,
)
from pydanube.pipelines.snapshots import (
    METADATA,
    FileEntry,
    Manifest,
    Order,
    commits_of,
    order_of,
    select,
)
from pydanube.pipelines.spec import option_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydanube.pipelines.loading import Pipeline
    from pydanube.pipelines.state import StateDirectory

KEPT_MANIFESTS = 3
"""How many snapshots the object store keeps."""

UNUSED_OBJECT_AGE = timedelta(hours=1)
"""How old an object must be to be removed because no manifest names it."""

TRIES = 5
"""How often a snapshot is begun anew because Spark has removed a file meanwhile."""


class CheckpointStore:
    """The snapshots of one pipeline in an object store."""

    def __init__(self, store: Any, pipeline: str) -> None:
        """*store* is one of obstore's, and holds nothing else where it begins."""
        self._store = store
        self._pipeline = pipeline

    def newest(self) -> Manifest | None:
        """
        The snapshot that was pushed last, if one was.

        Raises:
            ObjectsUnavailable: The object store does not answer.
            Corrupt: The manifest cannot be read.
        """
        names = self._manifests()
        return None if not names else self._manifest(names[-1])

    def push(
        self, state: StateDirectory, *, is_final: bool, force: bool = False
    ) -> Manifest:
        """
        Copy what *state* has; files that were copied before are not copied again.

        Durability: The snapshot is in the object store on return.
        Bounds: One file is in memory at a time.

        Raises:
            NotFound: There are no checkpoints.
            Conflict: What the object store has is newer or another pipeline's, and not
                *force*; or somebody else pushed at the same time.
            ObjectsUnavailable: The object store does not answer.
        """
        paths = _files(state.checkpoints)
        newest = self.newest()
        if not paths and not force:
            if newest is None:
                raise NotFound(f"there are no checkpoints in {state.path}")
            raise Conflict(
                f"{self._pipeline} has no checkpoints here, and the object store has "
                "some: pull them first, or push with --force to begin anew"
            )
        mine = _ids(state.checkpoints), commits_of(paths)
        if newest is not None and not force:
            _refuse_push(order_of(mine, (newest.ids, newest.commits)))
        files, commits = self._copy(state.checkpoints)
        manifest = Manifest(
            pipeline=self._pipeline,
            generation=0 if newest is None else newest.generation + 1,
            is_final=is_final,
            created=_now().isoformat(timespec="seconds"),
            commits=commits,
            ids=_ids(state.checkpoints),
            files=files,
        )
        self._put(
            f"manifests/{manifest.generation:012d}.json",
            msgspec.json.encode(manifest),
            must_be_new=True,
        )
        self._clean()
        return manifest

    def pull(
        self, state: StateDirectory, *, force: bool = False, at_least_once: bool = False
    ) -> Manifest:
        """
        Replace the checkpoints of *state*, which is locked, by the newest snapshot.

        Durability: Either the old ones or the new ones are there, whenever it ends.

        Raises:
            NotFound: There is no snapshot.
            Conflict: What is here is newer or another pipeline's, and not *force*; or
                the snapshot was taken during a run, and not *at_least_once*.
            Corrupt: An object is missing or is not what the manifest says.
            ObjectsUnavailable: The object store does not answer.
        """
        manifest = self.newest()
        if manifest is None:
            raise NotFound(f"the object store has no checkpoints of {self._pipeline}")
        if not manifest.is_final and not at_least_once:
            raise Conflict(
                f"the newest snapshot of {self._pipeline}, of {manifest.created}, was "
                "taken during a run that has not pushed its end: sinks may have more "
                "than it knows of. If that run is gone, --at-least-once goes on from "
                "here as a new query, which repeats rows and loses none"
            )
        here = _files(state.checkpoints)
        if here and not force:
            mine = _ids(state.checkpoints), commits_of(here)
            _refuse_pull(order_of(mine, (manifest.ids, manifest.commits)))
        new = state.path / f".pulled.{os.getpid()}"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        for entry in manifest.files:
            _write(new / entry.path, self._content(entry))
        if not manifest.is_final:
            for query in manifest.ids:
                identity = json.dumps({"id": str(uuid.uuid4())})
                _write(new / query / METADATA, identity.encode())
        shutil.rmtree(state.pulled, ignore_errors=True)
        new.rename(state.pulled)
        _sync_directory(state.path)
        state.settle()
        return manifest

    def _copy(self, checkpoints: Path) -> tuple[list[FileEntry], dict[str, int]]:
        known = self._objects()
        for _ in range(TRIES):
            # Commits first: whatever belongs to them is there already.
            commits = commits_of(_files(checkpoints))
            paths = select(_files(checkpoints), commits)
            try:
                return [self._copy_file(checkpoints, each, known) for each in paths], (
                    commits
                )
            except FileNotFoundError:
                continue
        raise Conflict(
            f"the checkpoints in {checkpoints} change faster than they can be copied"
        )

    def _copy_file(self, root: Path, path: str, known: set[str]) -> FileEntry:
        content = (root / path).read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if digest not in known:
            self._put(f"objects/{digest}", content)
            known.add(digest)
        return FileEntry(path, digest, len(content))

    def _content(self, entry: FileEntry) -> bytes:
        content = self._get(f"objects/{entry.digest}")
        if content is None or hashlib.sha256(content).hexdigest() != entry.digest:
            what = "missing" if content is None else "damaged"
            raise Corrupt(
                f"the object {entry.digest} of {entry.path} is {what}: the snapshot "
                "cannot be used"
            )
        return content

    def _clean(self) -> None:
        """Remove manifests that are old, and objects that none names any more."""
        names = self._manifests()
        self._delete(names[:-KEPT_MANIFESTS])
        used = {
            entry.digest
            for name in names[-KEPT_MANIFESTS:]
            for entry in self._manifest(name).files
        }
        old = _now() - UNUSED_OBJECT_AGE
        self._delete(
            each["path"]
            for each in self._list("objects/")
            if each["path"].rpartition("/")[2] not in used
            and each["last_modified"] < old
        )

    def _manifests(self) -> list[str]:
        return sorted(each["path"] for each in self._list("manifests/"))

    def _manifest(self, name: str) -> Manifest:
        content = self._get(name)
        try:
            return msgspec.json.decode(content or b"", type=Manifest)
        except msgspec.MsgspecError as error:
            raise Corrupt(f"the manifest {name} cannot be read: {error}") from error

    def _objects(self) -> set[str]:
        return {each["path"].rpartition("/")[2] for each in self._list("objects/")}

    def _list(self, prefix: str) -> list[Any]:
        import obstore  # noqa: PLC0415  # It is in an extra.

        try:
            return [each for page in obstore.list(self._store, prefix) for each in page]
        except obstore.exceptions.BaseError as error:
            raise _unavailable(error) from error

    def _get(self, path: str) -> bytes | None:
        import obstore  # noqa: PLC0415  # It is in an extra.

        try:
            return bytes(obstore.get(self._store, path).bytes())
        except (FileNotFoundError, obstore.exceptions.NotFoundError):
            return None
        except obstore.exceptions.BaseError as error:
            raise _unavailable(error) from error

    def _put(self, path: str, content: bytes, *, must_be_new: bool = False) -> None:
        import obstore  # noqa: PLC0415  # It is in an extra.

        mode = "create" if must_be_new else "overwrite"
        try:
            obstore.put(self._store, path, content, mode=mode)
        except obstore.exceptions.AlreadyExistsError as error:
            raise Conflict(
                f"somebody else pushed checkpoints of {self._pipeline} just now"
            ) from error
        except obstore.exceptions.BaseError as error:
            raise _unavailable(error) from error

    def _delete(self, paths: Iterable[str]) -> None:
        import obstore  # noqa: PLC0415  # It is in an extra.

        names = list(paths)
        if not names:
            return
        try:
            obstore.delete(self._store, names)
        except obstore.exceptions.BaseError as error:
            raise _unavailable(error) from error


def checkpoint_store(pipeline: Pipeline) -> CheckpointStore:
    """
    Where the file of *pipeline* says that checkpoints are copied to.

    Raises:
        InvalidConfig: It does not say, or the object store cannot be used.
    """
    words = pipeline.spec.checkpoints
    if words.remote is None:
        raise InvalidConfig(
            f"{pipeline.file}: checkpoints.remote is missing: it says where they are "
            "copied to, such as s3://bucket/pipelines"
        )
    try:
        from obstore.store import from_url  # noqa: PLC0415  # It is in an extra.
    except ImportError as error:
        raise InvalidConfig(
            "checkpoints.remote needs a package that is missing: pip install "
            "'pydanube[pipelines]'"
        ) from error
    url = f"{words.remote.rstrip('/')}/{pipeline.name}"
    if url.startswith("file://"):
        Path(url.removeprefix("file://")).mkdir(parents=True, exist_ok=True)
    options = {name: option_text(value) for name, value in words.options.items()}
    # A store without TLS has to be wished for.
    client = {"allow_http": options.pop("allow_http", "false") == "true"}
    try:
        is_file = url.startswith("file://")
        store = (
            from_url(url)
            if is_file
            else from_url(url, config=options or None, client_options=client)
        )
    except Exception as error:  # Whatever the kind of store raises.
        said = pipeline.secrets.hide(str(error))
        raise InvalidConfig(f"checkpoints.remote: {said}") from error
    return CheckpointStore(store, pipeline.name)


def _refuse_push(order: Order) -> None:
    if order in (Order.OLDER, Order.UNRELATED):
        raise Conflict(
            "the checkpoints in the object store are "
            + ("newer than these" if order is Order.OLDER else "of other queries")
            + ": pull them, or push with --force to replace them"
        )


def _refuse_pull(order: Order) -> None:
    if order in (Order.NEWER, Order.UNRELATED):
        raise Conflict(
            "the checkpoints here are "
            + (
                "newer than those in the object store"
                if order is Order.NEWER
                else "of other queries than those in the object store"
            )
            + ": push them, or pull with --force to replace them"
        )


def _files(root: Path) -> list[str]:
    return [
        path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()
    ]


def _ids(checkpoints: Path) -> dict[str, str]:
    found = {}
    for path in checkpoints.glob(f"*/{METADATA}"):
        try:
            found[path.parent.name] = str(json.loads(path.read_text("utf-8"))["id"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unavailable(error: Exception) -> ObjectsUnavailable:
    said = " ".join(str(error).split())
    return ObjectsUnavailable(f"the object store does not answer as it should: {said}")


def _now() -> datetime:
    return datetime.fromtimestamp(time.time_ns() / 1e9, UTC)
