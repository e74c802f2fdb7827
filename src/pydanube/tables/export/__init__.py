"""
Topics as tables of a lakehouse, kept up to date: ``danube lakehouse export``.

Where an export stands is in the table itself, written with the rows, so there is no
other state that could be lost.
"""
