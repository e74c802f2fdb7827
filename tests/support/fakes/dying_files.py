"""Files of pyiceberg whose process dies before one of its next writes."""

from typing import ClassVar

from pyiceberg.io.pyarrow import PyArrowFileIO


class Died(BaseException):
    """The process has died: nothing catches it, and nothing is tidied up."""


class DyingFileIO(PyArrowFileIO):
    """Writes and deletes files until ``left`` steps are done, and nothing after it."""

    left: ClassVar[int | None] = None
    """The number of further steps; None: the process does not die."""

    @classmethod
    def step(cls):
        if cls.left is not None:
            if not cls.left:
                raise Died
            cls.left -= 1

    def new_output(self, location):
        self.step()
        return super().new_output(location)

    def delete(self, location):
        self.step()
        super().delete(location)
