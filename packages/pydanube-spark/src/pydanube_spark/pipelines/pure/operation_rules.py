"""
The checks of the sections about the operation of a pipeline.  Pure.

These are ``metrics`` and ``lineage``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydanube.declarations.pure.problems import Path
from pydanube.model.errors import InvalidConfig
from pydanube.security.addresses import parse_listen
from pydanube_spark.pipelines.pure.spec import Lineage, Spec


def operation_problems(spec: Spec) -> Iterator[tuple[Path, str]]:
    """Yield the problems of *spec*, each with its path."""
    if spec.metrics is not None:
        try:
            parse_listen(spec.metrics.listen)
        except InvalidConfig as error:
            yield ("metrics", "listen"), str(error)
    if spec.lineage is not None:
        yield from _lineage_problems(spec.lineage)


def _lineage_problems(lineage: Lineage) -> Iterator[tuple[Path, str]]:
    if (lineage.url is None) == (lineage.file is None):
        yield ("lineage",), "set either url or file"
    elif lineage.url is not None and not re.match(r"https?://.", lineage.url):
        yield ("lineage", "url"), f"{lineage.url!r} is not an http or https URL"
    if lineage.api_key is not None and lineage.url is None:
        yield ("lineage", "api_key"), "only with url"
