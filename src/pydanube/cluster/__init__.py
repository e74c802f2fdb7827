"""
The decisions of a cluster of brokers, without I/O.

``ownership`` is one session's part in one shard: takeovers and moves.
"""
