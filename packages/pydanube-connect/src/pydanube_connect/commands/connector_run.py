"""The run of a connector whose kind is a Spark format, as it is requested."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pydanube.declarations.pure.parameters import parse_set
from pydanube_connect.commands.connector_pipelines import pipeline_of
from pydanube_connect.loading import load
from pydanube_spark.commands.pipeline_process import RunRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydanube_spark.pipelines.loading import Pipeline


class ConnectorRun(RunRequest, frozen=True, kw_only=True):
    """The run of a connector of the file."""

    connector: str
    """Its name."""

    def declared(self, tables: Mapping[str, Sequence[str]] | None = None) -> Pipeline:
        """Return the pipeline of the connector, which has no mirrors."""
        del tables
        given = parse_set(self.settings)
        declared = load(Path(self.file), parameters=given, environment=os.environ)
        return next(
            pipeline_of(each) for each in declared if each.name == self.connector
        )
