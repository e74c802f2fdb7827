"""
Export of topics to lakehouse tables: ``danube lakehouse export``.

Each commit stores the exported offsets in the table together with the rows.  There is
no other state.
"""
