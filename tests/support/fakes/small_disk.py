"""A disk in memory with limited space."""

import errno

from support.fakes.recording_files import RecordingFiles


class SmallDisk:
    """A ``ReserveFile`` and files that share it; writes to a full disk raise ENOSPC."""

    is_blocking = False

    def __init__(self, byte_count):
        self.byte_count = byte_count
        self.occupied = 0
        self.files = RecordingFiles(fail=self._fail)

    def free_bytes(self):
        used = sum(map(len, self.files.contents.values()))
        return self.byte_count - self.occupied - used

    def allocate(self, byte_count):
        if byte_count - self.occupied > self.free_bytes():
            self.occupied = 0
            raise OSError(errno.ENOSPC, "No space left on device")
        self.occupied = byte_count

    def free(self):
        self.occupied = 0

    def _fail(self, operation):
        is_write = operation.kind == "write"
        if is_write and len(operation.data) > self.free_bytes():
            return OSError(errno.ENOSPC, "No space left on device")
        return None
