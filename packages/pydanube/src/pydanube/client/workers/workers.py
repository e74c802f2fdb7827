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
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol, TypeAlias, TypedDict, TypeVar, Unpack

from pydanube.aio.async_scopes import async_scope
from pydanube.aio.tasks import TaskScope, run_all, task_scope
from pydanube.client.connections.requester import check_seconds
from pydanube.client.connections.telemetry import Telemetry
from pydanube.client.consumers.consumer import Consumer, TopicConsumer
from pydanube.client.messages.messages import Message, MessageBatch, MessageId
from pydanube.client.messages.schema import Schema
from pydanube.client.pure.offsets import AckTarget
from pydanube.client.pure.work_queue import (
    Recovery,
    WaitingLimit,
    Work,
    WorkItem,
    WorkQueue,
)
from pydanube.client.workers.handlers import CallThreads, Handler
from pydanube.model.arguments import check
from pydanube.model.errors import BrokerError, Closed, InvalidRequest
from pydanube.model.positions import PositionLike

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 30.0
CONCURRENCY_MAX = 10_000
WAITING_PER_CALL = 2
"""A worker holds at least this many messages that wait, for each of its calls."""
WAITING_PER_CALL_IN_LANES = 16
"""The same if messages wait for others with the same key."""
EXTENSIONS_PER_TIMEOUT = 3
"""How often a worker extends the ack timeout of a message before it has passed."""
TURN_S = 0.001
"""How long calls that do not wait may follow each other in a turn of the loop."""
SETTINGS_INTERVAL_S = 10.0
"""The longest time after which a worker learns of another ack timeout."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

F = TypeVar("F", bound=Callable[..., Any])
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
    start: PositionLike
    name: str | None
    ack_timeout_s: float | None
    key_filters: Iterable[str]
    priority: int


class WorkerClient(Protocol):
    """A client, as workers use it."""

    @property
    def consumer(self) -> Callable[..., AbstractAsyncContextManager[Consumer]]: ...

    @property
    def telemetry(self) -> Telemetry | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A function, and the subscription whose messages it processes."""

    topic: str | list[str]
    subscription: str
    handler: Handler
    concurrency: int
    batch_max: int
    is_ordered: bool
    consumer_options: dict[str, Any]

    @property
    def waiting_max(self) -> int:
        """The most messages that wait for a call of a slow worker."""
        factor = WAITING_PER_CALL_IN_LANES if self.is_ordered else WAITING_PER_CALL
        return factor * self.concurrency * self.batch_max

    def lane_of(self, message: Message, id: MessageId) -> Any:  # noqa: A002
        """Return what the message shares with those that it must not overtake."""
        if not self.is_ordered:
            return id
        key = message.key_bytes
        # As the broker does for messages without a key.
        return id.topic, message.producer.encode() if key is None else key


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
    handler = Handler(function, schema=schema, is_batched=batch is not None)
    return Worker(
        topic=topic,
        subscription=subscription,
        handler=handler,
        concurrency=concurrency,
        batch_max=batch or 1,
        is_ordered=order == "key" or type == "key_shared",
        consumer_options={"type": type, "schema": handler.schema} | consumer_options,
    )


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
        threads: CallThreads,
    ) -> None:
        self.failure: BrokerError | None = None
        """Why the worker can receive no more messages."""
        self.on_failure: Callable[[], None] = lambda: None
        self._worker = worker
        self._client = client
        self._consumer = consumer
        self._tasks = tasks
        self._threads = threads
        self._queue = WorkQueue(
            concurrency=worker.concurrency,
            batch_max=worker.batch_max,
            waiting_max=worker.waiting_max,
            is_ordered=worker.is_ordered,
        )
        self._clock = asyncio.get_running_loop().time
        self._limit = WaitingLimit(worker.waiting_max, self._clock())
        self._is_stopping = False
        # Set when a call ends, if there is room for more messages, or while stopping.
        self._call_ended = asyncio.Event()
        name = worker.handler.name
        self._receiving = tasks.run(self._receive(), f"{name} receives")
        tasks.run(self._keep_messages(), f"{name} extends ack timeouts")

    def stop_receiving(self) -> None:
        """Start no more calls."""
        self._is_stopping = True
        self._receiving.cancel()

    async def finished(self) -> None:
        """Wait until no call runs."""
        while self._queue.is_running:
            self._call_ended.clear()
            await self._call_ended.wait()

    def report_unfinished(self) -> None:
        """Log which messages calls are still processing."""
        running = [item.id for item in self._queue if item.is_running]
        if running:
            log.warning(
                "%s is stopped before it has processed %d messages, the first is "
                "message %d of %s: the broker delivers them again",
                self._worker.handler.name,
                len(running),
                running[0].offset,
                running[0].topic,
            )

    # Receiving.

    async def _receive(self) -> None:
        queue = self._queue
        try:
            while True:
                if not queue.has_room:
                    self._call_ended.clear()
                    await self._call_ended.wait()
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
        refused = []
        for received, base, end in batch.slices:
            source: Any = received.source
            consumer: TopicConsumer = source.consumer
            for message in received.messages(base, end):
                id = message.id  # noqa: A001  # It is what users call it.
                item = WorkItem(
                    id,
                    self._worker.lane_of(message, id),
                    message,
                    consumer,
                    consumer.drops,
                    received.arrival,
                )
                if not self._queue.add(item):
                    refused.append(item)
        self._release(refused)

    # Processing.

    def _next_work(self) -> Work | None:
        return None if self._is_stopping else self._queue.take()

    def _start_calls(self) -> None:
        """Start a task for each call that may begin now."""
        while (work := self._next_work()) is not None:
            self._tasks.run(self._run_calls(work), self._worker.handler.name)

    async def _run_calls(self, work: Work | None) -> None:
        """Process *work*, and then what is ready, one call after the other."""
        task = asyncio.current_task()
        assert task is not None
        turn_end = self._clock() + TURN_S
        while work is not None:
            await self._process(work)
            if self._clock() >= turn_end:
                await asyncio.sleep(0)
                turn_end = self._clock() + TURN_S
            # A function may return although its task is cancelled.
            work = None if task.cancelling() else self._next_work()
            self._start_calls()
            if self._queue.has_room or self._is_stopping:
                self._call_ended.set()

    async def _process(self, work: Work) -> None:
        """Call the function with the messages of *work*, and settle them."""
        handler = self._worker.handler
        good, values, invalid = _decoded(work.items, handler)
        behind: list[WorkItem] = []
        if invalid:
            for item, error in invalid:
                self._reject([item], error)
            failed_lanes = {item.lane for item, _ in invalid}
            # Their places are behind the rejected messages.
            behind = [item for item in good if item.lane in failed_lanes]
            kept = [at for at, item in enumerate(good) if item not in behind]
            good = [good[at] for at in kept]
            values = [values[at] for at in kept]
        is_failed = bool(invalid)
        if good:
            message = handler.message([item.message for item in good])
            arguments = handler.arguments(self._client, message, values)
            try:
                with self._tracing(message):
                    await handler.call(self._threads, arguments)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # The function has cancelled itself.
                self._reject(good, error)
                is_failed = True
            except Exception as error:  # noqa: BLE001  # One message may fail alone.
                self._reject(good, error)
                is_failed = True
            else:
                self._settle(self._consumer._ack_nowait, message)
        if is_failed:
            released, recoveries = self._queue.fail(work)
            self._release([*behind, *released])
            for source in {recovery.source for recovery in recoveries}:
                mine = [each for each in recoveries if each.source is source]
                self._tasks.run(self._recover(source, mine), "recovery")
        else:
            self._queue.finish(work)
        if self._limit.on_processed(len(work.items), self._clock()):
            self._apply_limit()

    def _apply_limit(self) -> None:
        """Let as many messages wait, here and on their way, as the limit says."""
        self._queue.waiting_max = self._limit.messages
        consumers = list(self._consumer._consumers)
        for each in consumers:
            _, bytes_max = each.credit.maximum
            share = max(1, self._limit.messages // len(consumers))
            each.credit.change_max(share, bytes_max)

    def _tracing(
        self, message: Message | MessageBatch
    ) -> AbstractContextManager[object]:
        telemetry = self._client.telemetry
        return nullcontext() if telemetry is None else telemetry.processing(message)

    async def _recover(self, consumer: Any, recoveries: list[Recovery]) -> None:
        """Note when the broker has learnt of failures and of released messages."""
        with suppress(BrokerError):
            await consumer.flush()
            for recovery in recoveries:
                recovery.limit = consumer.arrivals + 1
            unread = [each.arrival for each in consumer._unread.batches]
            self._queue.recover(consumer, min(unread, default=inf))

    def _reject(self, items: list[WorkItem], error: BaseException) -> None:
        reason = f"{type(error).__name__}: {error}"
        log.warning(
            "%s failed with message %d of %s, attempt %d%s: %s",
            self._worker.handler.name,
            items[0].id.offset,
            items[0].id.topic,
            items[0].message.attempt,
            _and_more(len(items) - 1),
            reason,
            exc_info=error,
        )
        messages = [item.message for item in items]
        self._settle(self._consumer._nack_nowait, messages, reason=reason)

    def _release(self, items: list[WorkItem]) -> None:
        if items:
            messages = [item.message for item in items]
            self._settle(self._consumer._release_nowait, messages)

    def _settle(
        self, settle: Callable[..., None], messages: AckTarget, **options: Any
    ) -> None:
        # If the consumer has failed, the broker delivers the messages again, and
        # receiving raises the error.
        with suppress(BrokerError):
            settle(messages, **options)

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
        held: defaultdict[object, list[Message]] = defaultdict(list)
        for item in self._queue:
            if not item.is_lost:
                held[item.source].append(item.message)
        for consumer in self._consumer._consumers:
            timeout_s = consumer.ack_timeout_s
            if timeout_s is not None:
                consumer._extend_nowait(held[consumer], timeout_s)
                consumer._extend_unread()


def _decoded(
    items: list[WorkItem], handler: Handler
) -> tuple[list[WorkItem], list[Any], list[tuple[WorkItem, Exception]]]:
    """Return the items that can be decoded, their values, and the others."""
    if not handler.has_values:
        return items, [], []
    good, values = [], []
    invalid: list[tuple[WorkItem, Exception]] = []
    for item in items:
        try:
            values.append(item.message.value)
            good.append(item)
        except Exception as error:  # noqa: BLE001  # One message may fail alone.
            invalid.append((item, error))
    return good, values, invalid


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
    threads = CallThreads("pydanube worker")
    try:
        # From the last to the first: the tasks end before the consumers are closed.
        async with AsyncExitStack() as consumers, task_scope() as tasks:
            if handle_signals:
                consumers.enter_context(_signals(running.stop))
            opened = [
                await consumers.enter_async_context(_open_consumer(client, each))
                for each in workers
            ]
            for each, consumer in zip(workers, opened, strict=True):
                running.add(RunningWorker(each, client, consumer, tasks, threads))
            yield running
            await running.finish()
            if running.failure is not None:
                raise running.failure
    finally:
        threads.close()


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
