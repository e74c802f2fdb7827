"""
A cluster of brokers: sessions, the controller, and who owns which shard.

In ``pure``, ``ownership``, ``moves``, ``placement`` and ``directions`` decide about one
session's part in a shard, the changes of shards, which broker should own which shard,
and what the controller changes next.  ``session``, ``takeover`` and ``controller`` are
the shells around them, and ``journal_host`` does what concerns messages in object
journals.  ``servers/membership`` connects them with a broker.
"""
