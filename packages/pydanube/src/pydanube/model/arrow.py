"""
PyArrow, imported when it is first used, if it is installed at all.

The client works without it.  With it, large batches take less time, and messages can be
read and published as Arrow data.  Importing it takes a quarter of a second of processor
time, and clients that only manage topics and subscriptions need none of it.  Modules
that such clients import have ``from pydanube.model.arrow import pa, pc``, and use
neither at import time.  A broker needs ``pa`` at once, but starts without ``pc``, whose
import is a twelfth of the processor time of its start.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pydanube.model.extras import MissingExtra

__all__ = ["envelope", "is_arrow", "is_installed", "load", "pa", "pc"]


class LazyModule(ModuleType):
    """A stand-in for the module of its name, which its first attribute imports."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # Tools that inspect modules must not import it.
            raise AttributeError(name)
        try:
            module = import_module(self.__name__)
        except ModuleNotFoundError as error:
            if error.name != "pyarrow":
                raise
            raise MissingExtra(
                "Arrow data needs pyarrow, which is not installed: "
                "pip install 'pydanube[fast]'",
                name=error.name,
            ) from error
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


@cache
def is_installed() -> bool:
    """Return whether there is PyArrow; this does not import it."""
    return find_spec("pyarrow") is not None


def is_arrow(data: object) -> bool:
    """Return whether *data* is a record batch or a table, without importing Arrow."""
    if sys.modules.get("pyarrow") is None:
        return False
    return isinstance(data, pa.RecordBatch | pa.Table)


def load() -> None:
    """
    Import PyArrow now, if it is installed.

    Clients call this before they send or receive messages; otherwise the import would
    delay the first message.
    """
    if not is_installed():
        return
    # The first array also imports pandas, if it is installed, which takes longer.
    pa.array([b""])
    pc.equal  # noqa: B018
    envelope.FIELDS  # noqa: B018
