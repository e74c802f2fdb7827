"""
PyArrow, imported when it is first used.

Importing PyArrow takes a quarter of a second of processor time, and clients that only
manage topics and subscriptions need no Arrow data.  Modules that such clients import
have ``from pydanube.model.arrow import pa, pc``, and use neither at import time.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["envelope", "load", "pa", "pc"]


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
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa = LazyModule("pyarrow")
    pc = LazyModule("pyarrow.compute")

envelope: Any = LazyModule("pydanube.model.envelope")


def load() -> None:
    """
    Import PyArrow now.

    Clients call this before they send or receive messages; otherwise the import would
    delay the first message.
    """
    pa.array  # noqa: B018
    pc.equal  # noqa: B018
    envelope.FIELDS  # noqa: B018
