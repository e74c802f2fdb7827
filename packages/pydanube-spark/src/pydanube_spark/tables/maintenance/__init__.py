"""
Maintenance of the segments of topics: merging, compaction by key, verification.

``pure/planning`` decides.  ``segment_jobs`` has the jobs, each of which reads
and writes files itself.  ``run`` maintains a topic with Spark or with threads.
"""
