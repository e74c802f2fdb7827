"""
Pipelines: files that describe sources, steps and sinks.

``loading`` parses a file and checks it without Spark, ``validation`` checks it with
Spark and the servers, and ``running`` runs it.
"""

from pydanube.model.extras import require

require("cli", "a pipeline")
