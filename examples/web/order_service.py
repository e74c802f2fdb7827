"""
An order service: FastAPI publishes orders, and a worker in the same process bills them.

    pip install pydanube[schemas] fastapi uvicorn
    danube broker
    danube topics create /default/orders
    uvicorn order_service:app
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI, Request, Response

import pydanube
import pydanube.asgi

TOPIC = "/default/orders"


@dataclass
class Order:
    id: int
    amount: float


workers = pydanube.Workers()
billed: dict[int, float] = {}


@workers.worker(TOPIC, subscription="billing", start="earliest", concurrency=10)
async def bill(order: Order) -> None:
    # A message may come again after a crash, and billing twice must change nothing.
    billed[order.id] = order.amount


connected = pydanube.asgi.lifespan(workers=workers, wait_s=30)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with (
        connected(app),
        app.state.danube.producer(TOPIC, schema=Order) as app.state.orders,
    ):
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def order(order: Order, request: Request) -> dict[str, int]:
    """Accept an order, which is on the broker's disk before the answer."""
    message_id = await request.app.state.orders.send(order, key=str(order.id))
    return {"offset": message_id.offset}


@app.get("/orders/{number}")
async def status(number: int) -> dict[str, bool]:
    return {"billed": number in billed}


@app.get("/health")
async def health(request: Request, response: Response) -> dict[str, str]:
    failure = request.app.state.danube_workers.failure
    response.status_code = 503 if failure else 200
    return {"workers": str(failure or "running")}
