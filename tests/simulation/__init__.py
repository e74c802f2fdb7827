"""
A broker and its applications in one deterministic run, with faults of every kind.

Real parts.  The broker is the one that ``servers.run`` builds: journal, sealing,
segments, topics, subscriptions and the server of the native protocol.  The
applications use the real client.  The real bytes run between them.

Simulated parts.  Time: the event loop's clock jumps to the next timer when nothing
else is ready (``loop.py``).  Threads: their jobs run on the loop, a moment later.  The
network: streams are late, arrive in pieces, stall, break in the middle of a frame, or
become silent (``network.py``).  The disk: a page cache over the synced data; it fails,
fills up, is slow, and after a power loss contains any part of the unsynced data
(``disk.py``).  The object store and the metadata store: durable, slow, and sometimes
unavailable (``stores.py``).  The machine: the broker's process is killed, stopped, or
loses power in the middle of a commit, and is started again (``machine.py``).  Clocks
are set wrong.  Applications publish, consume, ack, nack, extend, forget, die and
restart (``applications.py``).

Checks, from outside.  The ledger (``ledger.py``) records the actions of the
applications and the answers that they got.  The wiretap (``wiretap.py``,
``deliveries.py``) records the frames at the broker's end of every connection.  Together
they check these rules:

- acknowledged messages are stored, at the offset in the receipt, whatever happens;
- offsets increase by one, each holds one message for ever, no message is stored twice,
  and those of a producer are in the order of sending;
- every stored message is delivered at least once to every subscription, and is done
  only for a reason: an ack, a dead letter, its expiry, or a skip;
- messages that are confirmed to be done are never delivered again, a message is with
  one consumer at a time, keys and exclusive consumers keep the order, and delays,
  pauses, limits and credit are respected;
- readers get all messages from any earlier offset, also while segments are merged;
- after all faults the system recovers by itself: all messages are published, delivered
  and done, and the broker stops on request;
- nothing fails unexpectedly: no exception in the log, no error that an application did
  not cause, no task that waits for ever or never waits.

The seed determines the topics, their applications and the faults (``plan.py``).  The
same seed gives the same run, event by event; the digest in the report covers all
events.  A change of the plan or the simulation changes the meaning of seeds, so a bug
that a seed has found also gets a test of its own, if possible.

    make sim SEED=4711                        one run and a report
    make sim SEED=4711 ARGS='--trace'         every event
    make sim SEED=4711 ARGS='--about t0:s1'   the events that contain this text
    make sim SEED=4711 ARGS='--shrink'        the smallest plan that still fails
    make sim SEED=4711 ARGS='--cluster'       several brokers; see ``cluster.py``
    make sim SEED=4711 ARGS='--features'      whole brokers; see ``served.py``
    make sim-long                             seed after seed, until Ctrl-C
"""
