"""
Tables of a lakehouse, Delta Lake and Apache Iceberg, written without the JVM.

Tasks write Parquet files into a table's storage; one transaction of the driver
makes them part of the table, and remembers in the same breath what they stand for.
"""
