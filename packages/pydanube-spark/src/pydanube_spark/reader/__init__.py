"""
Reading ranges of topics as Arrow batches, for Spark, exports and maintenance.

``topics`` finds what to read, ``pure/scans`` divides it among tasks, ``scan_reader``
reads one scan.  Nothing here needs PySpark.
"""
