"""
Functions and classes of users, named as ``functions.py:enrich`` or ``package:enrich``.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydanube.model.suggestions import did_you_mean


class NoSuchFunction(ValueError):
    """A function that a file names does not exist."""


def check_function(text: str, directory: Path) -> None:
    """
    Check that the function that *text* names exists, without running its file.

    Raises:
        NoSuchFunction: *text* is malformed, or the file is missing, is not Python, or
            lacks the function.
    """
    module, name = _parse(text)
    if not module.endswith(".py"):
        return
    path = directory / module
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except OSError as error:
        raise NoSuchFunction(f"the file {path} cannot be read: {error}") from error
    except (SyntaxError, ValueError) as error:
        raise NoSuchFunction(f"{path} is not Python: {error}") from error
    names = list(_defined(tree))
    if name not in names:
        near = did_you_mean(name, names)
        raise NoSuchFunction(f"{path} has no function {name}{near}")


def load_function(text: str, directory: Path) -> Callable[..., Any]:
    """
    Import the file or module that *text* names and return the function.

    Raises:
        NoSuchFunction: *text* is malformed, the import fails, or the function is
            missing.
    """
    found = load_object(text, directory, "function")
    if not callable(found):
        raise NoSuchFunction(f"{text} is no function")
    return found  # type: ignore[no-any-return]


def load_object(text: str, directory: Path, kind: str) -> Any:
    """
    Import the file or module that *text* names and return the object, a *kind*.

    Raises: As ``load_function``.
    """
    path, name = _parse(text)
    try:
        module = _import(path, directory)
    except Exception as error:  # User code.
        reason = f"{type(error).__name__}: {error}"
        raise NoSuchFunction(f"{path} cannot be imported: {reason}") from error
    if not hasattr(module, name):
        known = [each for each in vars(module) if not each.startswith("_")]
        near = did_you_mean(name, known)
        raise NoSuchFunction(f"{path} has no {kind} {name}{near}")
    return getattr(module, name)


def _parse(text: str) -> tuple[str, str]:
    path, colon, name = text.rpartition(":")
    if not colon or not path or not name.isidentifier():
        raise NoSuchFunction(
            f"{text!r} must be FILE.py:FUNCTION or MODULE:FUNCTION, such as "
            "functions.py:enrich"
        )
    return path, name


def _import(module_path: str, directory: Path) -> Any:
    if not module_path.endswith(".py"):
        return importlib.import_module(module_path)
    path = (directory / module_path).resolve()
    # The name is unique because files in two directories may have the same name.
    name = f"danube_{abs(hash(str(path))):x}_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    return module


def _defined(tree: ast.Module) -> Iterator[str]:
    for each in tree.body:
        if isinstance(each, ast.FunctionDef | ast.ClassDef):
            yield each.name
        elif isinstance(each, ast.Assign):
            yield from (
                target.id for target in each.targets if isinstance(target, ast.Name)
            )
        elif isinstance(each, ast.ImportFrom | ast.Import):
            yield from (alias.asname or alias.name for alias in each.names)
