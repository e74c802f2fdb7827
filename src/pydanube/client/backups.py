"""The operations of a client on backups of the broker."""

from __future__ import annotations

from pydanube.client.requester import Requester
from pydanube.model.arguments import checks_arguments
from pydanube.model.descriptions import BackupProgress
from pydanube.wire.native.messages import from_wire
from pydanube.wire.pb import stream_pb2 as pb


@checks_arguments
class BackupRequests(Requester):
    """The operations of ``Client`` on backups of the broker."""

    async def create_backup(self, store: str) -> BackupProgress:
        """
        Begin a backup of the broker to an object store that its settings name.

        The broker makes it while it goes on serving; ``describe_backup`` tells how far
        it is.  The backup has the state of a moment after this call: everything that
        was acknowledged before the call is in it.  Until it is finished, the broker
        removes no segments and deletes no topics.

        Args:
            store: The name of the store in the setting ``stores`` of the broker.

        Raises:
            BackupRunning: A backup is being made.
            InvalidRequest: The settings have no such store.
            InvalidConfig: The broker cannot open the store.
        """
        request = pb.CreateBackup(store=store)
        return from_wire(BackupProgress, await self.send_request(request))

    async def describe_backup(self) -> BackupProgress:
        """Return the progress of the last backup since the broker's start."""
        return from_wire(BackupProgress, await self.send_request(pb.DescribeBackup()))
