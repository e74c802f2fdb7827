"""
Lakehouse tables, Delta Lake and Apache Iceberg, written without the JVM.

Tasks write Parquet files into a table's storage.  One transaction of the driver adds
the files to the table, together with the offsets or the batch that they hold.
"""
