"""
A metadata store in ZooKeeper.

``store`` implements the interface.  ``change_log`` keeps a copy of all values in memory
(``replica``) by following the log of changes, whose nodes ``pure/nodes`` names.
``client`` calls ZooKeeper, ``pure/liveness`` decides when it leaves a member, and
``leases`` keeps sessions.
"""
