"""
A metadata store in etcd.

``store`` implements the interface, ``client`` calls etcd, ``writer`` makes changes
whose outcome is known, ``watching`` follows changes, and ``leases`` keeps sessions.
"""
