"""The entry point of ``danube recover``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.model.errors import InconsistentDirectory
from pydanube.servers.recovery.contents import DirectoryContents, RecoveryReport
from pydanube.servers.recovery.plan import plan
from pydanube.servers.recovery.write import finish_renames, write_changes

if TYPE_CHECKING:
    from pydanube.servers.directory import DataDirectory
    from pydanube.storage.config import StorageConfig


async def recover_directory(
    directory: DataDirectory,
    config: StorageConfig,
    *,
    from_segments: bool,
    accept_loss: bool,
    write: bool,
) -> RecoveryReport:
    """
    Examine *directory*, and repair it if *write* is true.

    The caller must hold the directory's lock.

    Raises:
        InconsistentDirectory: The repair needs *from_segments* or *accept_loss*, or
            the parts belong to different clusters.
    """
    if write:
        finish_renames(directory)
    contents = DirectoryContents(directory, config)
    async with contents.reading_metadata() as store:
        await contents.read(store)
        operations = await plan(contents, store)
    report = contents.report
    if not write:
        return report
    for is_needed, is_allowed, flag in (
        (report.needs_from_segments, from_segments, "--from-segments"),
        (report.needs_accept_loss, accept_loss, "--accept-loss"),
    ):
        if is_needed and not is_allowed:
            raise InconsistentDirectory(
                f"{directory.path} cannot be recovered without {flag}: the metadata "
                f"store is {report.metadata}; the journal is {report.journal}; the "
                f"object store is {report.objects}"
            )
    if report.needs_from_segments or report.needs_accept_loss:
        await write_changes(contents, operations)
        report.written = True
    return report
