"""
A broker and its users in one deterministic run: everything that can go wrong, does.

What is real.  The broker is the one that ``servers.run`` puts together: journal,
sealing, segments, topics, subscriptions and the native protocol's server.  The
applications use the real client.  Between them run the real bytes.

What is simulated.  Time: the event loop's clock jumps to the next timer when nobody
has anything to do (``loop.py``).  Threads: their jobs are done on the loop, a moment
later.  The network: streams that are late, arrive in pieces, stall, break in the
middle of a frame, or go silent (``network.py``).  The disk: a page cache over what
was synced; it fails, fills up, is slow, and after a power loss holds any part of
what was not synced (``disk.py``).  The object store and the metadata store: durable,
slow, and at times not there (``stores.py``).  The machine: the broker's process is
killed, stopped, or loses its power in the middle of a commit, and is started again
(``machine.py``).  Clocks are set wrong.  Applications publish, consume, acknowledge,
give back, forget, die and come again (``applications.py``).

What is checked, from outside.  The ledger (``ledger.py``) has what applications did
and were told; the wiretap (``wiretap.py``, ``deliveries.py``) has what passed at the
broker's end of every connection.  Together they hold the broker to its word:

- what was acknowledged is stored, at the offset that was told, whatever happens;
- offsets rise one by one, each holds one message for ever, no message is stored
  twice, and those of a producer are in the order of sending;
- everything stored is delivered at least once to every subscription, and is done
  only for a reason: somebody acknowledged it, it is a dead letter, it expired, it
  was skipped;
- what was confirmed to be done never comes again, a message is with one consumer
  at a time, keys and exclusive consumers keep the order, delays, pauses, limits and
  credit are respected;
- after everything that went wrong the system comes to rest by itself: all is
  published, delivered and done, and the broker stops when it is asked to;
- nothing fails that nobody expects: no exception in the log, no error that an
  application did not ask for, nobody waits for ever, nobody works for ever.

A seed says it all: the topics, who uses them how, and what goes wrong
(``plan.py``).  The same seed gives the same run, event by event; the digest in the
report stands for all of them.  A seed means something else after a change to the
plan or the simulation; a bug that one has found is therefore also fixed a test of
its own where it was, if that can be.

    make sim SEED=4711                        one run, and what happened in it
    make sim SEED=4711 ARGS='--trace'         every event
    make sim SEED=4711 ARGS='--about t0:s1'   the events in which that stands
    make sim SEED=4711 ARGS='--shrink'        the least of it that still fails
    make sim-long                             seed after seed, until Ctrl-C
"""
