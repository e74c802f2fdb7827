"""
The decisions of a cluster of brokers, without I/O.

``ownership`` is one session's part in one shard, ``moves`` has the controller's changes
of shards, and ``placement`` decides which broker should own which shard.
"""
