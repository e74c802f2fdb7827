"""
PyArrow and CRC-32C, imported when they are first used.

Importing PyArrow takes a quarter of a second of processor time, and clients that only
manage topics and subscriptions need no batches of messages.  Modules that such clients
import have ``from pydanube.model.arrow import pa, pc``, and use neither at import time.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["crc32c", "envelope", "load", "pa", "pc"]


class LazyModule(ModuleType):
    """A stand-in for the module of its name, which its first attribute imports."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # Tools that inspect modules must not import it.
            raise AttributeError(name)
        module = import_module(self.__name__)
        # From now on, this is a module like the other one, and as fast.
        self.__dict__.update(vars(module))
        self.__class__ = ModuleType  # type: ignore[assignment]
        return getattr(module, name)


if TYPE_CHECKING:
    import crc32c
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    crc32c = LazyModule("crc32c")
    pa = LazyModule("pyarrow")
    pc = LazyModule("pyarrow.compute")

envelope: Any = LazyModule("pydanube.model.envelope")


def load() -> None:
    """
    Import them now.

    Clients call this before they send or receive messages; otherwise the import would
    delay the first message.
    """
    crc32c.crc32c  # noqa: B018
    # The first array also imports pandas, if it is installed, which takes longer.
    pa.array([b""])
    pc.equal  # noqa: B018
    envelope.FIELDS  # noqa: B018
