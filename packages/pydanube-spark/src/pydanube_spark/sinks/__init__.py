"""
Sinks for other systems: PostgreSQL, ClickHouse, LanceDB and HTTP.

Each module with the name of a system has its Spark data source and its sink, which
writes Arrow batches and does not depend on Spark.
"""
