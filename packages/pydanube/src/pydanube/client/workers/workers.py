"""
Workers: functions that a client calls with the messages of a subscription.

``WorkQueue`` decides which messages are processed next.  A worker receives messages,
calls its function in tasks or threads, acknowledges the messages when it returns,
rejects them when it raises, and extends the ack timeout of all that it holds.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import defaultdict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    contextmanager,
    suppress,
)
from functools import partial
from inspect import iscoroutinefunction
from itertools import repeat
from math import inf
from time import monotonic
from typing import Any, Generic, Protocol, TypeAlias, TypedDict, TypeVar, Unpack

from pydanube.aio.async_scopes import async_scope
from pydanube.aio.contexts import begin_in_own_context
from pydanube.aio.tasks import TaskScope, run_all, task_scope
from pydanube.client.connections.requester import check_seconds
from pydanube.client.consumers.consumer import Consumer, TopicConsumer
from pydanube.client.messages.messages import (
    Message,
    MessageBatch,
    ReceivedBatch,
)
from pydanube.client.messages.schema import Schema
from pydanube.client.producers.typed_producer import TypedProducer
from pydanube.client.pure.offsets import AckTarget
from pydanube.client.pure.work_queue import (
    Delivery,
    Recovery,
    Run,
    WaitingLimit,
    Work,
    WorkQueue,
)
from pydanube.client.workers.client_parts import F
from pydanube.client.workers.handlers import (
    BoundHandler,
    CallThreads,
    Handler,
    Middleware,
    ThreadCalls,
)
from pydanube.client.workers.results import (
    ResultClient,
    ResultPublisher,
    ResultTopic,
    open_publisher,
)
from pydanube.model.arguments import check
from pydanube.model.errors import (
    BrokerError,
    Closed,
    InvalidRequest,
    MessageNotHeld,
    TransactionFenced,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube.model.positions import PositionLike

log = logging.getLogger(__name__)

CONCURRENCY_MAX = 10_000
WAITING_PER_CALL = 2
"""A worker holds at least this many messages that wait, for each of its calls."""
WAITING_PER_CALL_IN_LANES = 16
"""The same if messages wait for others with the same key."""
EXTENSIONS_PER_TIMEOUT = 3
"""How often a worker extends the ack timeout of a message before it has passed."""
TURN_S = 0.001
"""How long calls that do not wait may follow each other in a turn of the loop."""
PREPARED_CALLS = 64
"""How many calls wait for threads, so that a thread need not wait for the loop."""
SETTINGS_INTERVAL_S = 10.0
"""The longest time after which a worker learns of another ack timeout."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

T = TypeVar("T")
M = TypeVar("M", bound=Middleware)
AnyClass: TypeAlias = type
"""In WorkerKeywords, ``type`` is an option."""


class WorkerKeywords(TypedDict, total=False):
    """
    The options of ``Client.worker`` besides topic and subscription.

    Options:
        concurrency: The most calls at the same time, by default 1.
        batch: The most messages of a call, which gets a list of values; they are
            acknowledged or rejected together.  None: a call has one message.
        order: ``"key"``: the messages of a key are processed one after the other, in
            order, also after a failure.  None: in no particular order.
        type: As in ``ConsumerKeywords``; by default ``"shared"``, or ``"key_shared"``
            with the order of keys, which ``"key_shared"`` implies.
        schema: The reader schema; by default the annotation of the function.
        publish: The topic to which the worker publishes what the function returns,
            before it acknowledges the message: a value of the annotated class, a
            ``Result`` with key and attributes, a ``Message`` to forward, an iterable of
            several of these, or None.  None: results are ignored.
        exactly_once: Publish results and acknowledge their message in a transaction,
            all or nothing.  The topic of ``publish`` must be reliable.
        Others: As in ``ConsumerKeywords``.

    Raises:
        InvalidRequest: An option is invalid, or the function has parameters that a
            worker cannot provide.
    """

    concurrency: int
    batch: int | None
    order: str | None
    type: str
    schema: Schema[Any] | AnyClass | None
    publish: str | None
    exactly_once: bool
    start: PositionLike
    name: str | None
    ack_timeout_s: float | None
    key_filters: Iterable[str]
    priority: int


class WorkerClient(ResultClient, Protocol):
    """A client, as workers use it."""

    @property
    def consumer(self) -> Callable[..., AbstractAsyncContextManager[Consumer]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A function, and the subscription whose messages it processes."""

    topic: str | list[str]
    subscription: str
    handler: Handler
    concurrency: int
    batch_max: int
    is_ordered: bool
    results: ResultTopic | None
    """Where the results of the function are published, if they are."""
    consumer_options: dict[str, Any]

    @property
    def acks_in_transactions(self) -> bool:
        """Whether the messages are acknowledged with their results."""
        return self.results is not None and self.results.is_transaction

    @property
    def waiting_max(self) -> int:
        """The most messages that wait for a call of a slow worker."""
        factor = WAITING_PER_CALL_IN_LANES if self.is_ordered else WAITING_PER_CALL
        return factor * self.concurrency * self.batch_max

    def lanes_of(self, batch: ReceivedBatch) -> list[tuple[str, bytes]] | None:
        """Return what each message shares with those that it must not overtake."""
        if not self.is_ordered:
            return None
        keys = batch.keys or repeat(None, batch.count)
        # As the broker does for messages without a key.
        producers = batch.producers or repeat(batch.frame.header.producer, batch.count)
        return [
            (batch.topic, (producer or "").encode() if key is None else key)
            for key, producer in zip(keys, producers, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class DeclaredProducer(Generic[T]):
    """
    A topic to which a program publishes values; made by ``Workers.producer``.

    ``danube docs`` documents it, and ``open`` opens a producer.
    """

    topic: str
    schema: Schema[T] | type[T]

    def open(
        self, client: WorkerClient
    ) -> AbstractAsyncContextManager[TypedProducer[T]]:
        """Open a producer of *client*, as ``Client.producer`` does."""
        return client.producer(self.topic, schema=self.schema)


class Workers:
    """
    Functions that process messages; ``Client.run_workers`` or ``run`` runs them.

    A function has one parameter, which is annotated as the class of the values, as
    ``Message``, or as ``MessageBatch``; another one may be a ``Client``.  It may be
    asynchronous; otherwise it is called in a thread.

    The message is acknowledged when the function returns.  If it raises, the message
    is rejected, and the failure policy of the subscription applies.  While the function
    runs, its messages do not time out.

    ``run_workers`` ends with SIGINT or SIGTERM, which only the main thread can handle:
    the workers receive no more messages, finish their calls, and give back the rest,
    which the broker delivers again.  A second signal ends the wait for calls.  After
    ``stop_timeout_s``, asynchronous calls are cancelled and others are abandoned; their
    messages are given back.  Cancellation does the same at once, and so does an error
    in the body of ``running_workers``.

    A program that has no client yet, such as a module that defines a web application,
    collects its workers in one of these.

    Raises, when they run:
        InvalidRequest: There are no workers.
        BrokerError: A worker cannot receive messages, as for ``Client.consumer`` and
            ``Consumer.receive``.  The others have stopped as after a signal.
    """

    def __init__(self) -> None:
        self._workers: list[Worker] = []
        self.producers: list[DeclaredProducer[Any]] = []
        """The topics that ``producer`` was called with."""
        self._middlewares: list[Middleware] = []
        self._publish_middlewares: list[Middleware] = []

    def worker(
        self,
        topic: str | Iterable[str],
        *,
        subscription: str,
        **options: Unpack[WorkerKeywords],
    ) -> Callable[[F], F]:
        """Return a decorator that adds a function; see ``WorkerKeywords``."""
        unknown = sorted(options.keys() - WorkerKeywords.__annotations__.keys())
        if unknown:
            raise TypeError(f"a worker has no option {unknown[0]!r}")
        check(WorkerKeywords, options)
        topics = topic if isinstance(topic, str) else list(topic)

        def add(function: F) -> F:
            self._workers.append(
                _worker(function, topics, subscription=subscription, **options)
            )
            return function

        return add

    def producer(
        self, topic: str, *, schema: Schema[T] | type[T]
    ) -> DeclaredProducer[T]:
        """Declare that the program publishes values to *topic*, and return how."""
        declared = DeclaredProducer(str(TopicName.parse(topic)), schema)
        self.producers.append(declared)
        return declared

    def middleware(self, function: M) -> M:
        """
        Add a function around each call, for example to measure or to log; a decorator.

        *function* is ``async def``, with two parameters: the ``Message``, or the
        ``MessageBatch``, and ``call_next``.  ``await call_next(message)`` decodes the
        value, calls the function of the worker, publishes what it returns, and returns
        it.  What *function* raises rejects the message; if it raises nothing, the
        message is acknowledged.

        The first one that was added is the outermost.  Messages of a batch that cannot
        be decoded are rejected before.
        """
        self._middlewares.append(_checked_middleware(function))
        return function

    def publish_middleware(self, function: M) -> M:
        """
        Add a function around the publication of each result; a decorator.

        *function* is ``async def``, with two parameters: the ``Result`` and
        ``call_next``.  ``await call_next(result)`` publishes it, or another result.
        The results of a call are then published one after the other.
        """
        self._publish_middlewares.append(_checked_middleware(function))
        return function

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers)

    def __len__(self) -> int:
        return len(self._workers)


def _worker(
    function: Callable[..., Any],
    topic: str | list[str],
    *,
    subscription: str,
    concurrency: int = 1,
    batch: int | None = None,
    order: str | None = None,
    type: str = "",  # noqa: A002  # It is what users call it.
    schema: Schema[Any] | type | None = None,
    publish: str | None = None,
    exactly_once: bool = False,
    **consumer_options: Any,
) -> Worker:
    if order not in (None, "key"):
        raise InvalidRequest(f"order is {order!r}: it must be 'key' or None")
    if not 1 <= concurrency <= CONCURRENCY_MAX:
        raise InvalidRequest(
            f"concurrency is {concurrency}: it must be 1 to {CONCURRENCY_MAX}"
        )
    if batch is not None and batch < 1:
        raise InvalidRequest(f"batch is {batch}: it must be at least 1, or None")
    type = type or ("key_shared" if order == "key" else "shared")  # noqa: A001
    if exactly_once and publish is None:
        raise InvalidRequest(
            "exactly_once is for workers that publish results: give publish= a topic"
        )
    handler = Handler(
        function,
        schema=schema,
        is_batched=batch is not None,
        publishes=publish is not None,
    )
    results = None
    if publish is not None:
        results = ResultTopic.parse(
            publish, handler.returns, handler.name, is_transaction=exactly_once
        )
    return Worker(
        topic=topic,
        subscription=subscription,
        handler=handler,
        concurrency=concurrency,
        batch_max=batch or 1,
        is_ordered=order == "key" or type == "key_shared",
        results=results,
        consumer_options={"type": type, "schema": handler.schema} | consumer_options,
    )


def _checked_middleware(function: M) -> M:
    if not iscoroutinefunction(function):
        raise InvalidRequest(
            f"{function!r} is no middleware: write async def middleware(message, "
            "call_next), which returns await call_next(message)"
        )
    return function


class RunningWorkers:
    """Workers that run; made by ``Client.running_workers``."""

    def __init__(self, stop_timeout_s: float) -> None:
        self._running: list[RunningWorker] = []
        self._stop_timeout_s = stop_timeout_s
        self._is_stopping = asyncio.Event()
        self._is_hurried = asyncio.Event()

    def add(self, running: RunningWorker) -> None:
        """Add a worker, before ``wait``."""
        self._running.append(running)
        running.on_failure = self._is_stopping.set

    def stop(self) -> None:
        """
        Begin to stop: receive no more messages, and let the present calls finish.

        If they are finishing already, do not wait for them any longer.
        """
        if self._is_stopping.is_set():
            self._is_hurried.set()
        self._is_stopping.set()

    async def wait(self) -> None:
        """Wait until the workers begin to stop, on request or because one failed."""
        await self._is_stopping.wait()

    @property
    def failure(self) -> BrokerError | None:
        """Why a worker can receive no more messages, if one cannot."""
        return next((each.failure for each in self._running if each.failure), None)

    async def finish(self) -> None:
        """Stop, and wait for the present calls, for ``stop_timeout_s`` at most."""
        self._is_stopping.set()
        for each in self._running:
            each.stop_receiving()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._stop_timeout_s), task_scope() as tasks:
                finished = tasks.start(run_all([r.finished() for r in self._running]))
                hurried = tasks.start(self._is_hurried.wait())
                both: list[asyncio.Future[Any]] = [finished, hurried]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for each in self._running:
            each.report_unfinished()

    def close(self) -> None:
        """Drop the results of calls; the tasks of the workers are cancelled next."""
        for each in self._running:
            each.close()


class RunningWorker:
    """
    A worker with its consumer.

    Its tasks run in *tasks*; cancelling them leaves unfinished messages to the broker,
    which delivers them again when the consumer is closed.
    """

    def __init__(
        self,
        worker: Worker,
        client: WorkerClient,
        consumer: Consumer,
        tasks: TaskScope,
        *,
        middlewares: Sequence[Middleware],
        publisher: ResultPublisher | None,
    ) -> None:
        self.failure: BrokerError | None = None
        """Why the worker can receive no more messages."""
        self.on_failure: Callable[[], None] = lambda: None
        handler = worker.handler
        self._worker = worker
        self._consumer = consumer
        self._tasks = tasks
        self._publisher = publisher
        # Threads whose calls this object settles, or that tasks wait for.
        self._threads: CallThreads[Call] | None = None
        self._awaited_threads: ThreadCalls | None = None
        self._has_results = asyncio.Event()
        # Middlewares see the errors of decoding.
        self._decodes = handler.has_values
        threads_name = f"{handler.name} works"
        if middlewares or publisher is not None:
            self._decodes = handler.has_values and handler.is_batched
            if not handler.is_async:
                self._awaited_threads = ThreadCalls(threads_name, worker.concurrency)
            self._call: BoundHandler = handler.bound_within(
                client,
                client.telemetry,
                middlewares=middlewares,
                publish=None if publisher is None else publisher.publish,
                threads=self._awaited_threads,
            )
        else:
            self._call = handler.bound(client, client.telemetry)
            if not handler.is_async:
                self._threads = CallThreads(
                    threads_name, worker.concurrency, self._has_results.set
                )
        # Whether calls that do not wait may follow each other without a queue of them.
        self._passes = (
            publisher is None and self._threads is None and not handler.is_batched
        )
        self._queue = WorkQueue(
            concurrency=worker.concurrency,
            batch_max=worker.batch_max,
            waiting_max=worker.waiting_max,
            prepared_max=(
                PREPARED_CALLS if self._threads and not handler.is_batched else 0
            ),
            has_one_topic_per_call=worker.acks_in_transactions,
        )
        self._delivery: Delivery | None = None
        self._limit = WaitingLimit(worker.waiting_max, monotonic())
        self._task_count = 0
        self._is_stopping = False
        self._is_closed = False
        self._call_ended = asyncio.Event()
        self._awaits_end = False
        self._receiving = tasks.run(self._receive(), f"{handler.name} receives")
        tasks.run(self._keep_messages(), f"{handler.name} extends ack timeouts")
        if self._threads is not None:
            tasks.run(self._settle_results(self._threads), f"{handler.name} settles")

    def stop_receiving(self) -> None:
        """Start no more calls."""
        self._is_stopping = True
        self._receiving.cancel()
        if self._threads is not None:
            for call in self._threads.remove_waiting():
                self._queue.finish(call.work)
            self._call_ended.set()

    def close(self) -> None:
        """Drop the results of calls; the tasks are cancelled next."""
        self.stop_receiving()
        self._is_closed = True
        for threads in (self._threads, self._awaited_threads):
            if threads is not None:
                threads.close()

    async def finished(self) -> None:
        """Wait until no call runs."""
        while self._queue.running:
            await self._end_of_call()

    async def _end_of_call(self) -> None:
        """Wait until a call ends, if there is room for more messages, or stopping."""
        self._awaits_end = True
        self._call_ended.clear()
        await self._call_ended.wait()

    def report_unfinished(self) -> None:
        """Log which messages calls are still processing."""
        running = [run for work in self._queue.running for run in work.runs]
        if running:
            delivery, index, _ = running[0]
            log.warning(
                "%s is stopped before it has processed %d messages, the first is "
                "message %d of %s: the broker delivers them again",
                *(self._worker.handler.name, _count_of(running)),
                *(delivery.batch.offsets[index], delivery.batch.topic),
            )

    # Receiving.

    async def _receive(self) -> None:
        queue = self._queue
        try:
            while True:
                if not queue.has_room:
                    await self._end_of_call()
                    continue
                batch = await self._consumer.receive_batch(max_messages=queue.room)
                self._add(batch)
                self._start_calls()
        except BrokerError as error:
            self.failure = error
            if not isinstance(error, Closed):
                name = self._worker.handler.name
                log.error("%s cannot receive: %s", name, error)  # noqa: TRY400
            self.on_failure()

    def _add(self, batch: MessageBatch) -> None:
        refused: list[Run] = []
        for received, base, end in batch.slices:
            delivery = self._delivery
            if delivery is None or delivery.batch is not received or delivery.is_lost:
                source: Any = received.source
                consumer: TopicConsumer = source.consumer
                lanes = self._worker.lanes_of(received)
                delivery = Delivery(received, consumer, consumer.drops, lanes)
                self._delivery = delivery
            refused += self._queue.add(delivery, base, end)
        self._release(refused)

    # Processing.

    def _next_work(self) -> Work | None:
        if self._is_stopping:
            return None
        work = self._queue.take()
        if work is None:
            # There may be room for more messages: those that were lost are dropped.
            self._tell_room()
        return work

    def _start_calls(self) -> None:
        """Begin the calls that may begin now, in threads or in one more task."""
        if self._threads is None:
            if self._task_count < self._worker.concurrency and (
                work := self._next_work()
            ):
                self._task_count += 1
                self._tasks.run(self._make_calls(work), self._worker.handler.name)
            return
        while (work := self._next_work()) is not None:
            call = self._call_of(work)
            if call is not None:
                self._threads.start(call, partial(self._call, call.message, call.value))

    async def _settle_results(self, threads: CallThreads[Call]) -> None:
        """Settle the messages of calls in threads, and start others."""
        while True:
            await self._has_results.wait()
            self._has_results.clear()
            for call, _, error in threads.results():
                if error is not None and not isinstance(error, _CALL_ERRORS):
                    raise error
                self._end(call, error)
            self._start_calls()

    async def _make_calls(self, work: Work | None) -> None:
        """
        Process *work*, and then what is ready, one call after the other.

        A task makes many calls.  While one of them waits, another task goes on.
        """
        task = asyncio.current_task()
        assert task is not None
        turn_end = monotonic() + TURN_S
        while work is not None:
            call = self._call_of(work)
            rest = None if call is None else self._begin(call)
            if (
                rest is None
                and self._passes
                and monotonic() < turn_end
                and not task.cancelling()
            ):
                call, rest = self._pass_calls(task, turn_end)
            if call is not None and rest is not None:
                if self._task_count < self._worker.concurrency:
                    self._start_calls()
                try:
                    await rest
                except _CALL_ERRORS as error:
                    if self._is_closed and isinstance(error, asyncio.CancelledError):
                        raise
                    self._end(call, error)
                else:
                    self._end(call, None)
                turn_end = monotonic() + TURN_S
            if task.cancelling():
                # The function has cancelled the task: leave the next call to another.
                break
            if monotonic() >= turn_end:
                await asyncio.sleep(0)
                turn_end = monotonic() + TURN_S
            work = self._next_work()
        self._task_count -= 1
        if not self._is_closed:
            self._start_calls()

    def _pass_calls(
        self, task: asyncio.Task[Any], turn_end: float
    ) -> tuple[Call | None, Awaitable[None] | None]:
        """
        Process messages while calls do not wait or fail, until *turn_end*.

        They are taken from the queue and acknowledged together.  Returns a call that
        waits, and its rest.
        """
        run = None if self._is_stopping else self._queue.next_run()
        if run is None:
            return None, None
        delivery, base, end = run
        values = _values_of(run) if self._decodes else repeat(None)
        if values is None:
            return None, None
        messages = delivery.batch.messages(base, end)
        passed = base
        message, rest = None, None
        try:
            for message, value in zip(messages, values, strict=False):
                rest = begin_in_own_context(self._call(message, value))
                if rest is not None:
                    break
                passed += 1
                if monotonic() >= turn_end or task.cancelling():
                    break
        except BaseException as error:
            self._settle_passed(delivery, base, passed)
            if not isinstance(error, _CALL_ERRORS):
                raise
            assert message is not None
            self._end(Call(self._queue.take_first(), message, None), error)
            return None, None
        self._settle_passed(delivery, base, passed)
        if rest is None:
            return None, None
        assert message is not None
        return Call(self._queue.take_first(), message, None), rest

    def _settle_passed(self, delivery: Delivery, base: int, end: int) -> None:
        """Acknowledge messages that still wait, and remove them."""
        if base == end:
            return
        batch = delivery.batch
        self._ack(delivery.source, MessageBatch(batch.topic, [(batch, base, end)]))
        self._queue.pass_first(end - base)
        self._on_processed(end - base)

    def _call_of(self, work: Work) -> Call | None:
        """
        Return the call with the messages of *work*.

        Messages that cannot be decoded are rejected; None: there are no others.
        """
        handler = self._worker.handler
        if not handler.is_batched:
            [(delivery, index, _)] = work.runs
            batch = delivery.batch
            message = Message(batch, batch.offsets[index], batch.payloads[index])
            if not self._decodes:
                return Call(work, message, None)
            try:
                return Call(work, message, message.value)
            except Exception as error:  # noqa: BLE001  # One message may fail alone.
                self._end(Call(work, message, None), error)
                return None
        messages = _batch_of(work.runs)
        if not handler.has_values:
            return Call(work, messages, None)
        try:
            return Call(work, messages, messages.values())
        except Exception:  # noqa: BLE001  # Some messages fail alone.
            return self._call_without_invalid(work)

    def _call_without_invalid(self, work: Work) -> Call | None:
        """Reject messages of *work* that cannot be decoded; return as ``_call_of``."""
        good: list[tuple[Run, Any]] = []
        failed_lanes = set()
        for delivery, base, end in work.runs:
            for index in range(base, end):
                run = delivery, index, index + 1
                [message] = _batch_of([run])
                try:
                    good.append((run, message.value))
                except Exception as error:  # noqa: BLE001
                    self._reject(message, error)
                    if delivery.lanes is not None:
                        failed_lanes.add(delivery.lanes[index])
        # Messages whose places are behind the rejected ones are released later.
        behind = [run for run, _ in good if _is_in(failed_lanes, run)]
        good = [(run, value) for run, value in good if not _is_in(failed_lanes, run)]
        messages = _batch_of(run for run, _ in good)
        call = Call(work, messages, [value for _, value in good], behind, True)
        if good:
            return call
        self._end(call, None)
        return None

    def _begin(self, call: Call) -> Awaitable[None] | None:
        """Begin a call; return its rest if it waits."""
        try:
            rest = begin_in_own_context(self._call(call.message, call.value))
        except _CALL_ERRORS as error:
            self._end(call, error)
            return None
        if rest is None:
            self._end(call, None)
        return rest

    def _end(self, call: Call, error: BaseException | None) -> None:
        """Settle the messages of a call, which failed if there is an error."""
        work, message = call.work, call.message
        is_failed = call.has_invalid
        if error is not None:
            if self._publisher is not None:
                self._publisher.take_committed(message)
            self._reject(message, error)
            is_failed = True
        elif self._publisher is not None and self._publisher.take_committed(message):
            # It is acknowledged already.
            pass
        elif type(message) is Message:
            self._ack(work.runs[0][0].source, message)
        else:
            self._ack(self._consumer, message)
        if is_failed:
            self._fail(call)
        else:
            self._queue.finish(work)
        self._on_processed(work.count)

    def _on_processed(self, count: int) -> None:
        if self._limit.on_processed(count, monotonic()):
            self._apply_limit()
        self._tell_room()

    def _tell_room(self) -> None:
        """Wake who waits for room for more messages, or for the end of calls."""
        if self._awaits_end and (self._queue.has_room or self._is_stopping):
            self._awaits_end = False
            self._call_ended.set()

    def _ack(self, consumer: Any, messages: AckTarget) -> None:
        try:
            consumer._ack_nowait(messages)
        except BrokerError:
            # The consumer has failed: the broker delivers the messages again, and
            # receiving raises the error.
            return

    def _fail(self, call: Call) -> None:
        """Release the messages behind the rejected ones of a call."""
        released, recoveries = self._queue.fail(call.work)
        self._release([*call.behind, *released])
        if self._is_closed:
            return
        for source in {recovery.source for recovery in recoveries}:
            mine = [each for each in recoveries if each.source is source]
            self._tasks.run(self._recover(source, mine), "recovery")

    def _apply_limit(self) -> None:
        """Let as many messages wait, here and on their way, as the limit says."""
        self._queue.waiting_max = self._limit.messages
        consumers = list(self._consumer._consumers)
        for each in consumers:
            _, bytes_max = each.credit.maximum
            share = max(1, self._limit.messages // len(consumers))
            each.credit.change_max(share, bytes_max)

    async def _recover(self, consumer: Any, recoveries: list[Recovery]) -> None:
        """Note when the broker has learnt of failures and of released messages."""
        with suppress(BrokerError):
            await consumer.flush()
            for recovery in recoveries:
                recovery.limit = consumer.arrivals + 1
            unread = [each.arrival for each in consumer._unread.batches]
            self._queue.recover(consumer, min(unread, default=inf))

    def _reject(self, messages: Message | MessageBatch, error: BaseException) -> None:
        reason = f"{type(error).__name__}: {error}"
        first = messages if isinstance(messages, Message) else messages[0]
        others = 0 if isinstance(messages, Message) else len(messages) - 1
        if self._worker.acks_in_transactions and isinstance(error, _LOST):
            log.info(
                "%s did not commit the results of message %d of %s%s, which the broker "
                "delivers again: %s",
                *(self._worker.handler.name, first.offset, first.topic),
                *(_and_more(others), reason),
            )
            # If it has done so already, the worker has ignored it because of this call.
            with suppress(BrokerError):
                self._consumer._release_nowait(messages)
            return
        log.warning(
            "%s failed with message %d of %s, attempt %d%s: %s",
            *(self._worker.handler.name, first.offset, first.topic),
            *(first.attempt, _and_more(others), reason),
            exc_info=error,
        )
        with suppress(BrokerError):
            self._consumer._nack_nowait(messages, reason=reason)

    def _release(self, runs: list[Run]) -> None:
        if runs:
            with suppress(BrokerError):
                self._consumer._release_nowait(_batch_of(runs))

    # Slow work keeps its messages.

    async def _keep_messages(self) -> None:
        try:
            while True:
                timeouts_s = (each.ack_timeout_s for each in self._consumer._consumers)
                known_s = [each for each in timeouts_s if each is not None]
                pause_s = min(known_s, default=inf) / EXTENSIONS_PER_TIMEOUT
                await asyncio.sleep(min(SETTINGS_INTERVAL_S, pause_s))
                self._extend()
        except InvalidRequest as error:
            log.warning("%s: %s", self._worker.handler.name, error)
        except BrokerError:
            # The consumer has failed; receiving raises the error, too.
            return

    def _extend(self) -> None:
        """Extend the ack timeout of all messages that are not processed yet."""
        held: defaultdict[object, list[Run]] = defaultdict(list)
        for run in self._queue:
            if not run[0].is_lost:
                held[run[0].source].append(run)
        for consumer in self._consumer._consumers:
            timeout_s = consumer.ack_timeout_s
            if timeout_s is not None:
                if consumer in held:
                    consumer._extend_nowait(_batch_of(held[consumer]), timeout_s)
                consumer._extend_unread()


@dataclass(slots=True, eq=False)
class Call:
    """A call of the function of a worker."""

    work: Work
    message: Message | MessageBatch
    value: Any
    """The value of the message, or the values of a batch, if the function has them."""
    behind: Sequence[Run] = ()
    """Messages of *work* to release when the call ends."""
    has_invalid: bool = False
    """Whether messages of *work* were rejected before the call."""


_LOST = (MessageNotHeld, TransactionFenced)
"""Errors of transactions whose messages the broker has taken back; not failures."""

_CALL_ERRORS = (Exception, asyncio.CancelledError)
"""One message may fail alone, also by cancelling itself."""


def _batch_of(runs: Iterable[Run]) -> MessageBatch:
    slices = [(delivery.batch, base, end) for delivery, base, end in runs]
    return MessageBatch(slices[0][0].topic if slices else "", slices)


def _values_of(run: Run) -> list[Any] | None:
    """Return the values of messages; None: some cannot be decoded."""
    delivery, base, end = run
    try:
        values = delivery.batch.values
    except Exception:  # noqa: BLE001  # The call of each message finds out.
        return None
    return None if values is None else values[base:end]


def _count_of(runs: Iterable[Run]) -> int:
    return sum(end - base for _, base, end in runs)


def _is_in(lanes: set[Hashable], run: Run) -> bool:
    delivery, index, _ = run
    return delivery.lanes is not None and delivery.lanes[index] in lanes


def _and_more(count: int) -> str:
    return f" and {count} more" if count else ""


@async_scope
async def running_workers(
    client: WorkerClient,
    workers: Workers,
    *,
    stop_timeout_s: float,
    handle_signals: bool = False,
) -> AsyncIterator[RunningWorkers]:
    """Run *workers* while the body runs; see ``Client.running_workers``."""
    check_seconds("stop_timeout_s", stop_timeout_s)
    running = RunningWorkers(stop_timeout_s)
    if not len(workers):
        raise InvalidRequest(
            "there are no workers to run: decorate a function with @client.worker(…)"
        )
    # From the last to the first: the tasks end before the consumers are closed.
    async with AsyncExitStack() as consumers, task_scope() as tasks:
        if handle_signals:
            consumers.enter_context(_signals(running.stop))
        # Results are published until the consumers are closed.
        publishers = [
            None
            if each.results is None
            else await consumers.enter_async_context(
                open_publisher(
                    client,
                    each.results,
                    each.subscription,
                    slots=each.concurrency,
                    middlewares=workers._publish_middlewares,
                )
            )
            for each in workers
        ]
        opened = [
            await consumers.enter_async_context(_open_consumer(client, each))
            for each in workers
        ]
        try:
            for each, consumer, publisher in zip(
                workers, opened, publishers, strict=True
            ):
                running.add(
                    RunningWorker(
                        each,
                        client,
                        consumer,
                        tasks,
                        middlewares=workers._middlewares,
                        publisher=publisher,
                    )
                )
            yield running
            await running.finish()
        finally:
            running.close()
        if running.failure is not None:
            raise running.failure


def _open_consumer(
    client: WorkerClient, worker: Worker
) -> AbstractAsyncContextManager[Consumer]:
    return client.consumer(
        worker.topic,
        subscription=worker.subscription,
        prefetch_messages=worker.waiting_max,
        **worker.consumer_options,
    )


async def run_workers(
    client: WorkerClient,
    workers: Workers,
    *,
    stop_timeout_s: float,
    handle_signals: bool,
) -> None:
    """Run *workers* until they are stopped; see ``Workers``."""
    async with running_workers(
        client, workers, stop_timeout_s=stop_timeout_s, handle_signals=handle_signals
    ) as running:
        await running.wait()


@contextmanager
def _signals(handle: Callable[[], None]) -> Iterator[None]:
    """Call *handle* for SIGINT and SIGTERM, if this is possible in this thread."""
    loop = asyncio.get_running_loop()
    before: dict[signal.Signals, Any] = {}
    # Other threads than the main thread, and Windows, do not have it.
    with suppress(ValueError, RuntimeError, NotImplementedError):
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            loop.add_signal_handler(number, handle)
            before[number] = handler
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
