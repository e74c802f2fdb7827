"""
Sinks for what is neither a topic nor a lake: PostgreSQL, ClickHouse, LanceDB, HTTP.

Each is a data source of Spark's that writes Arrow batches, in a batch write as in a
stream.  ``writers.py`` is what Spark sees of all of them; a sink itself knows nothing
of Spark.
"""
