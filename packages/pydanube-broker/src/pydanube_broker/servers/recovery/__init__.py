"""
The command ``danube recover``: repairs a data directory that lost one of its parts.

Segments contain the name and the number of their topic and their offsets.  The journal
contains the names, numbers, cursors and producers of all reliable topics.  The
records of topics and segments can be rebuilt without the metadata store
(``--from-segments``).  If the journal is lost, the messages that were not sealed are
lost with it.  Each topic then continues at an offset that was certainly never given
out (``--accept-loss``), and reading the offsets in between fails with an error.

Nothing is deleted: a file that is replaced is first moved to ``replaced/``.  New files
are complete and synced before they take their place, and the next run finishes a run
that was interrupted.
"""
