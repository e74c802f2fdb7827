"""Parts are put together by arguments of constructors, and not by assignments."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from support.project import modules, name_of, text_of, tree_of

SHELLS = {"broker", "client", "cluster", "servers", "storage"}
CALLABLE = re.compile(r"Callable\[|:\s*On")
"""The annotation of a callback."""
DATA = {"consumer: acks.end", "writer_schemas: batch.decode"}
"""An offset with the name of a callback, and the decoder of one batch."""


def test_a_part_of_another_object_is_not_replaced() -> None:
    assert [
        f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}"
        for path in _shells()
        for node in _assigned(path)
        if isinstance(node.value, ast.Attribute) and not _is_own(node.value)
    ] == []


def test_a_callback_of_another_object_is_a_constructor_argument() -> None:
    callbacks = defaultdict(set)
    for path in modules():
        if CALLABLE.search(text_of(path)) is None:
            continue
        for name in _callbacks_of(tree_of(path)):
            callbacks[name].add(path)
    found = {
        f"{path.stem}: {ast.unparse(node)}"
        for path in _shells()
        for node in _assigned(path)
        if not _is_own(node) and callbacks[node.attr] - {path}
    }
    assert found == DATA


def _shells() -> list[Path]:
    found = [each for each in modules() if SHELLS & set(each.parts)]
    assert found, "the shells have other names now"
    return found


@cache
def _assigned(path: Path) -> list[ast.Attribute]:
    """Return the attributes that are assigned, also by ``with … as``."""
    found, counted = [], set()
    for node in ast.walk(tree_of(path)):
        # Counters rise: ``counts.sent += 1`` replaces no part.
        if isinstance(node, ast.AugAssign):
            counted.add(node.target)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.append(node)
    return [each for each in found if each not in counted]


def _is_own(node: ast.Attribute) -> bool:
    """Return whether an attribute is one of ``self`` or of its own part."""
    value: ast.expr = node
    while isinstance(value, ast.Attribute):
        value = value.value
    return isinstance(value, ast.Name) and value.id in {"self", "cls"}


def _callbacks_of(tree: ast.AST) -> Iterator[str]:
    """Return the attributes that are declared to be functions of a caller."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and _is_callable(node.annotation):
            match node.target:
                case ast.Attribute(attr=name):
                    yield name
                case ast.Name(id=name):
                    yield name


def _is_callable(annotation: ast.expr) -> bool:
    text = ast.unparse(annotation)
    return "Callable[" in text or text.startswith("On")
