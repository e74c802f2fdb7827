"""Replication: the topics of one broker or cluster, mirrored to another one."""
