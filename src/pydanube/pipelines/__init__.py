"""
Pipelines: a file that says what is read, what becomes of it, and where it goes.

``loading`` reads the file and finds what is wrong with it without Spark,
``validation`` finds the rest with Spark and the servers, and ``running`` runs it.
"""

from pydanube.model.extras import require

require("cli", "a pipeline")
