"""A queue without a limit that somebody else fills is told where it was empty at last, and who waits for room or for an answer is not. No torch runs."""

import asyncio
import queue
import sys
import threading
import types

import pytest
from plimsoll_agent.run import drained


class Tensor:
    """Of 4 KiB on device 0."""


TORCH = types.SimpleNamespace(Tensor=Tensor)


def told():
    """What is told of the functions that run now."""
    running, frame = [], sys._getframe(1)
    while frame is not None:
        running.append(frame)
        frame = frame.f_back
    found = drained.told(running, TORCH, lambda it: (0, id(it), 4096))
    return [(device, it["where"], it["bytes"], it["line"]["function"], it["unlimited"]) for device, it in found]


async def ahead(ready, answers):
    while True:
        await asyncio.sleep(0)
        ready.put_nowait((Tensor(), Tensor()))


async def asks(ready, answers):
    while True:
        await ready.put((Tensor(), Tensor()))
        await answers.get()


async def joins(ready, answers):
    while True:
        await ready.put((Tensor(), Tensor()))
        await ready.join()


async def trains(ready, answers):
    for _ in range(3):
        batch = await ready.get()
        found = told()
        ready.task_done()
        answers.put_nowait(len(batch))
    return found


ENTRY = [(0, "ready", 8192, "ahead", {"kind": "queue", "entries": 0})]


@pytest.mark.parametrize(("fills", "limit", "expected"), [(ahead, 0, ENTRY), (asks, 0, []), (joins, 0, []), (ahead, 9, [])])
def test_a_coroutine(fills, limit, expected):
    async def main():
        ready, answers = asyncio.Queue(limit), asyncio.Queue()
        filling = asyncio.create_task(fills(ready, answers))
        found = await trains(ready, answers)
        filling.cancel()
        return found

    assert asyncio.run(main()) == expected


class Loader:
    """Fills its own queue."""

    def __init__(self, kind):
        self.ready, self.room, self.over = kind(), threading.Semaphore(2), False

    def fill(self):
        while not self.over:
            self.ready.put({"x": Tensor()})
            threading.Event().wait(0.05)

    def fill_with_room(self):
        while not self.over:
            self.room.acquire()
            self.ready.put({"x": Tensor()})
            threading.Event().wait(0.05)


@pytest.mark.parametrize("kind", [queue.Queue, queue.SimpleQueue])
@pytest.mark.parametrize(("method", "expected"), [("fill", [(0, "self.ready", 4096, "fill", {"kind": "queue", "entries": 0})]), ("fill_with_room", [])])
def test_a_thread(kind, method, expected):
    loader = Loader(kind)
    threading.Thread(target=getattr(loader, method), daemon=True).start()
    batch = loader.ready.get()
    found = told()
    loader.over = True
    assert isinstance(batch["x"], Tensor) and found == expected
