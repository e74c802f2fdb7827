"""The system that `danube up --init` writes."""

from __future__ import annotations

from pathlib import Path

from pydanube.model.errors import AlreadyExists

SHOP = '''"""A shop: a page at http://127.0.0.1:8000 that publishes orders."""

from contextlib import asynccontextmanager
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

import pydanube

PAGE = """<!doctype html><title>Shop</title><h1>Shop</h1>
<p>An order of less than 0 becomes a dead letter.</p>
<form onsubmit="order(event)">
<input name="amount" value="10"> <button>Order</button>
</form>
<pre id="seen"></pre>
<script>
async function order(event) {
  event.preventDefault();
  const amount = event.target.amount.value;
  await fetch("/orders?amount=" + amount, {method: "POST"});
}
async function show() {
  document.getElementById("seen").textContent = await (await fetch("/seen")).text();
}
setInterval(show, 1000);
</script>"""


@dataclass
class Order:
    id: int
    amount: float


@asynccontextmanager
async def lifespan(app):
    async with pydanube.connect() as client:
        app.state.client = client
        await client.topics.create("/default/orders-dead", exist_ok=True)
        async with client.producer("/default/orders", schema=Order) as app.state.orders:
            yield


app = FastAPI(lifespan=lifespan)


@app.get("/")
async def page() -> HTMLResponse:
    return HTMLResponse(PAGE)


@app.post("/orders")
async def order(amount: float, request: Request) -> dict[str, int]:
    stored = await request.app.state.orders.send(Order(1, amount))
    return {"offset": stored.offset}


@app.get("/seen")
async def seen(request: Request) -> dict[str, int]:
    topics = request.app.state.client.topics
    described = await topics.describe("/default/orders")
    counts = {"orders": described.message_count}
    for each in described.subscriptions:
        counts[f"waiting for {each.subscription}"] = each.backlog
    dead = await topics.describe("/default/orders-dead")
    counts["dead letters"] = dead.message_count
    return counts


if __name__ == "__main__":
    uvicorn.run(app, port=8000, log_level="warning")
'''

WORKER = '''"""A worker that bills orders; what it cannot bill becomes a dead letter."""

from dataclasses import dataclass

import pydanube

TOPIC, SUBSCRIPTION = "/default/orders", "billing"


@dataclass
class Order:
    id: int
    amount: float


async def main():
    async with pydanube.connect() as client:
        await client.topics.create(TOPIC, exist_ok=True)
        await client.topics.create("/default/orders-dead", exist_ok=True)
        await client.subscriptions.configure(
            TOPIC,
            SUBSCRIPTION,
            failure_policy=pydanube.FailurePolicy(
                redeliveries_max=1,
                redelivery_delay_s=1.0,
                poison=pydanube.PoisonPolicy.DEAD_LETTER,
                dead_letter_topic="/default/orders-dead",
            ),
        )

        @client.worker(TOPIC, subscription=SUBSCRIPTION, start="earliest")
        async def bill(order: Order):
            if order.amount < 0:
                raise ValueError(f"{order.amount} cannot be billed")
            print(f"billed {order.amount}", flush=True)

        await client.run_workers()


pydanube.run(main())
'''

FILES = {"programs/shop.py": SHOP, "programs/worker.py": WORKER}


def write_example(directory: Path) -> list[Path]:
    """
    Write the system into *directory*, which is created; returns the files.

    Raises:
        AlreadyExists: One of the files exists; nothing was written.
    """
    paths = {directory / name: text for name, text in FILES.items()}
    for path in paths:
        if path.exists():
            raise AlreadyExists(f"{path} exists: choose another directory")
    for path, text in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(paths)
