"""Work is repeated while somebody watches, and its failures are kept."""

import asyncio

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import Unavailable
from pydanube_console.polling import Poller


class Counter(Poller):
    def __init__(self, *errors):
        super().__init__()
        self.count = 0
        self.errors = list(errors)

    async def take(self):
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)


async def test_work_waits_for_somebody_who_watches():
    counter = Counter()
    async with task_scope() as tasks:
        tasks.run(counter.run())
        await asyncio.sleep(0)
        assert (counter.count, counter.has_taken) == (0, False)
        await counter.first()
        assert (counter.count, counter.has_taken) == (1, True)


async def test_error_is_kept_until_the_work_succeeds(caplog):
    counter = Counter(Unavailable("no answer"), ZeroDivisionError())
    await counter.attempt()
    assert counter.error == "no answer"
    await counter.attempt()
    assert counter.error == "a failure of the console: ZeroDivisionError"
    assert "ZeroDivisionError" in caplog.text
    await counter.attempt()
    assert (counter.error, counter.has_taken) == ("", True)
