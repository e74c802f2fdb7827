"""The commands of pipelines and tables."""

from __future__ import annotations

from pydanube.declarations.commands import CommandSet

COMMANDS = CommandSet(
    package="pydanube_spark.commands",
    panels={
        "Spark": {
            "pipeline": "Run a pipeline of topics, files and tables on Spark.",
            "lakehouse": "Export topics to tables of Delta Lake and Iceberg.",
            "maintenance": "Merge, compact and verify the segments of topics.",
        },
    },
    uses_pandas=True,
)
