"""
The worlds in which tests speak to a broker.

A test that opens its brokers with ``memory_broker``, ``sync_memory_broker`` or the
fixture ``broker`` of this package runs in every world that ``--world`` chooses, and
promises the same in each of them:

- ``memory``: one broker in memory.
- ``cluster``: three brokers, whose shards move and whose sessions end.
- ``secured``: a broker that permits only what the table of operations names, beside a
  tenant that must not notice anything.
- ``restarts``: one broker that stops or crashes, and recovers.

Something happens to the brokers between two steps of a client, by a seed.
``differences`` lists what cannot hold in which world, and ``selection`` has the options
of pytest.
"""
