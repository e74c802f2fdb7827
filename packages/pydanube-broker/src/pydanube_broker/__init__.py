"""
The broker: what is stored, dispatched and owned, and the servers in front of it.

``danube broker`` runs one; ``pydanube_broker.testing`` has one for tests of programs.
"""
