"""
Maintenance of a topic's sealed history: merging, compaction by key, verification.

``planning`` decides, without I/O; ``tasks`` are the jobs, each of which reads and
writes files by itself; ``run`` goes through topics with Spark or with threads.
"""
