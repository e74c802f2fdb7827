"""Plug-ins: parts of other packages, which are found by their entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydanube.model.errors import InvalidConfig
from pydanube.model.extras import extra_hint

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

OBJECTS = "danube.objects"
"""
The group of object stores; an entry point has the scheme of their URLs as its name.

It refers to a function with the parameters of ``open_objects`` and its result.
"""
JOURNALS = "danube.journals"
"""
The group of journals; an entry point has the kind of the journal as its name.

It refers to a function from a ``JournalOpening`` to a context manager of a ``Journal``.
"""
LISTENERS = "danube.listeners"
"""
The group of listeners; an entry point has the name of their settings as its name.

It refers to a class derived from ``ListenerConfig``.
"""
METADATA = "danube.metadata"
"""
The group of metadata stores; an entry point has their ``metadata.kind`` as its name.

It refers to a class derived from ``RemoteStoreConfig``.
"""
COMMANDS = "danube.commands"
"""
The group of commands; an entry point has any name.

It refers to a ``CommandSet``.
"""


def plugin_names(group: str) -> list[str]:
    """Return the names that the installed packages declare in *group*, in order."""
    return sorted({each.name for each in _entry_points(group)})


def has_plugin(group: str, name: str) -> bool:
    """Return whether an installed package declares *name* in *group*."""
    return bool(_entry_points(group).select(name=name))


def load_plugin(group: str, name: str) -> Any:
    """
    Return the object to which the entry point *name* of *group* refers.

    Raises:
        InvalidConfig: No package declares it, or several do, or it cannot be imported.
    """
    found = _entry_points(group).select(name=name)
    packages = sorted({each.dist.name for each in found if each.dist is not None})
    if len(packages) != 1:
        declared = f"the packages {', '.join(packages)} declare" if packages else "none"
        raise InvalidConfig(
            f"expected one installed package with the entry point {name!r} in the "
            f"group {group}: {declared}" + ("" if packages else extra_hint(name))
        )
    try:
        return next(iter(found)).load()
    except (ImportError, AttributeError) as error:
        raise InvalidConfig(
            f"the entry point {name!r} in the group {group} of the package "
            f"{packages[0]} cannot be loaded: {error}"
        ) from error


def _entry_points(group: str) -> EntryPoints:
    # It takes 10 ms, and most commands need no plug-in.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return entry_points(group=group)
