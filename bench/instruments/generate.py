"""Writes a memory snapshot as torch writes one, as large as wanted; the same arguments give the same bytes.

    python bench/instruments/generate.py EVENTS OUT.pickle

A transformer is trained in a loop on a caching allocator (best fit, two pools, split and merge, as torch's
default one). Every event is a dict of its own, its stack a list of its own, and frames are shared, which is what
`torch.cuda.memory._dump_snapshot` hands to pickle. Standard library only. 3 million events take about 3 GB while
they are made.
"""

import argparse
import bisect
import pickle
import random

MIB = 1 << 20
SITE = "/usr/lib/python3/dist-packages/torch/"
# Batches are padded to one of these lengths.
LENGTHS = (384, 512, 512, 512, 640, 768)
LAYERS, WIDTH, VOCABULARY, BATCH = 24, 1024, 50304, 8


class Pool:
    def __init__(self, small):
        self.small = small
        self.free = []  # (size, address), sorted: the best fit is the first that is large enough

    def take(self, size):
        at = bisect.bisect_left(self.free, (size, 0))
        return self.free.pop(at) if at < len(self.free) else None


class Device:
    """The caching allocator, and the recorder that watches it."""

    def __init__(self):
        self.events = []
        self.pools = (Pool(True), Pool(False))
        self.blocks = {}  # address: [size, in use, pool, segment, requested, stack, previous, next]
        self.segments = []
        self.next_segment = 0x7F0000000000
        self.micros = 1_790_000_000_000_000

    def event(self, action, address, size, frames):
        self.micros += 7
        self.events.append(
            {
                "action": action,
                "addr": address,
                "size": size,
                "stream": 0,
                "time_us": self.micros,
                # C++ makes a new text for each event.
                "compile_context": "/".join(("N", "A")),
                "user_metadata": "",
                "frames": frames,
            }
        )

    def alloc(self, requested, stack):
        frames = list(stack)
        size = max(512, (requested + 511) // 512 * 512)
        pool = self.pools[size > MIB]
        found = pool.take(size)
        if found is None:
            if pool.small:
                total = 2 * MIB
            elif size < 10 * MIB:
                total = 20 * MIB
            else:
                total = (size + 2 * MIB - 1) // (2 * MIB) * (2 * MIB)
            address, self.next_segment = self.next_segment, self.next_segment + total
            self.segments.append((address, total, pool.small, frames))
            self.event("segment_alloc", address, total, frames)
            self.blocks[address] = [total, False, pool, len(self.segments) - 1, 0, frames, None, None]
            found = (total, address)
        held, address = found
        block = self.blocks[address]
        rest = held - size
        if rest >= 512 if pool.small else rest > MIB:
            after = block[7]
            self.blocks[address + size] = [rest, False, pool, block[3], 0, [], address, after]
            if after is not None:
                self.blocks[after][6] = address + size
            block[0], block[7] = size, address + size
            bisect.insort(pool.free, (rest, address + size))
        block[1], block[4], block[5] = True, requested, frames
        self.event("alloc", address, requested, frames)
        return address

    def release(self, address, stack):
        frames = list(stack)
        block = self.blocks[address]
        self.event("free_requested", address, block[4], frames)
        self.event("free_completed", address, block[4], frames)
        block[1] = False
        free = block[2].free
        for other in (block[6], block[7]):
            if other is None or self.blocks[other][1]:
                continue
            del free[bisect.bisect_left(free, (self.blocks[other][0], other))]
            first, second = min(address, other), max(address, other)
            after = self.blocks[second][7]
            self.blocks[first][0] += self.blocks.pop(second)[0]
            self.blocks[first][7] = after
            if after is not None:
                self.blocks[after][6] = first
            address = first
        self.blocks[address][1] = False
        bisect.insort(free, (self.blocks[address][0], address))

    def state(self):
        res = []
        by_segment = [[] for _ in self.segments]
        for address, (size, used, _, segment, requested, frames, _, _) in sorted(self.blocks.items()):
            state = "active_allocated" if used else "inactive"
            block = {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}
            by_segment[segment].append(block)
        for (address, total, small, frames), blocks in zip(self.segments, by_segment, strict=True):
            used = [it for it in blocks if it["state"] == "active_allocated"]
            res.append(
                {
                    "device": 0,
                    "address": address,
                    "total_size": total,
                    "allocated_size": sum(it["size"] for it in used),
                    "active_size": sum(it["size"] for it in used),
                    "requested_size": sum(it["requested_size"] for it in used),
                    "stream": 0,
                    "segment_type": "small" if small else "large",
                    "segment_pool_id": (0, 0),
                    "is_expandable": False,
                    "frames": frames,
                    "blocks": blocks,
                }
            )
        return res


class Frames:
    """Each place once, as torch's symbolizer gives them."""

    def __init__(self):
        self.known = {}

    def stack(self, *places):
        """From outermost to innermost, turned around."""
        return [self.known.setdefault(it, {"name": it[2], "filename": it[0], "line": it[1]}) for it in reversed(places)]


def train(device, n_events):
    frames = Frames()
    rng = random.Random(7)
    main = [("/home/user/train.py", 120, "<module>"), ("/home/user/train.py", 96, "main")]
    module = [(SITE + "nn/modules/module.py", 1779, "_wrapped_call_impl"), (SITE + "nn/modules/module.py", 1790, "_call_impl")]
    forward = main + [("/home/user/train.py", 71, "step")] + module + [("/home/user/model.py", 210, "forward")] + module

    def layer(index, line, name):
        own = [("/home/user/model.py", 140 + index % 3, "forward")] + module + [("/home/user/model.py", line, name)]
        return frames.stack(*forward, *own, *module, (SITE + "nn/modules/linear.py", 134, "forward"))

    kinds = [("attention", 60, 3), ("attention", 66, 1), ("mlp", 88, 4), ("mlp", 91, 4), ("mlp", 92, 1), ("norm", 31, 1)]
    stacks = [[layer(i, line, name) for name, line, _ in kinds] for i in range(LAYERS)]
    batch_stack = frames.stack(*main, ("/home/user/train.py", 64, "step"))
    loss_stack = frames.stack(*forward[:3], *module, (SITE + "nn/modules/loss.py", 1297, "forward"), (SITE + "nn/functional.py", 3504, "cross_entropy"))
    backward = frames.stack(*main, ("/home/user/train.py", 74, "step"), (SITE + "_tensor.py", 630, "backward"), (SITE + "autograd/__init__.py", 364, "backward"))
    optimizer = frames.stack(*main, ("/home/user/train.py", 76, "step"), (SITE + "optim/optimizer.py", 517, "wrapper"), (SITE + "optim/adamw.py", 244, "step"), (SITE + "optim/adam.py", 949, "adam"), (SITE + "optim/adam.py", 773, "_multi_tensor_adam"))
    zero_grad = frames.stack(*main, ("/home/user/train.py", 66, "step"), (SITE + "optim/optimizer.py", 1031, "zero_grad"))
    setup = frames.stack(*main, ("/home/user/train.py", 40, "main"), (SITE + "nn/modules/module.py", 1371, "to"), (SITE + "nn/modules/module.py", 930, "_apply"))

    sizes = [4 * VOCABULARY * WIDTH]
    for _ in range(LAYERS):
        sizes += [12 * WIDTH * WIDTH, 4 * WIDTH * WIDTH, 16 * WIDTH * WIDTH, 16 * WIDTH * WIDTH, 4 * WIDTH, 4 * WIDTH]
    for size in sizes:
        device.alloc(size, setup)
    has_state, grads = False, []
    while len(device.events) < n_events:
        tokens = BATCH * rng.choice(LENGTHS)
        for it in grads:
            device.release(it, zero_grad)
        batch = [device.alloc(tokens * 8, batch_stack) for _ in range(2)]
        saved = []
        for own in stacks:
            for stack, (_, _, factor) in zip(own, kinds, strict=True):
                saved.append(device.alloc(tokens * WIDTH * 4 * factor, stack))
                scratch = [device.alloc(tokens * WIDTH * 4, stack), device.alloc(tokens * rng.choice((4, 8, 16)), stack)]
                for it in scratch:
                    device.release(it, stack)
        logits = device.alloc(tokens * VOCABULARY * 4, loss_stack)
        loss = device.alloc(4, loss_stack)
        grad = device.alloc(tokens * VOCABULARY * 4, [])
        device.release(logits, [])
        device.release(grad, [])
        grads = []
        for index, address in enumerate(reversed(saved)):
            grad = device.alloc(tokens * WIDTH * 4, [])
            grads.append(device.alloc(sizes[len(sizes) - 1 - index % (len(sizes) - 1)], []))
            device.release(grad, [])
            device.release(address, [])
        if not has_state:
            for size in sizes:
                device.alloc(size, optimizer)
                device.alloc(size, optimizer)
            has_state = True
        scratch = [device.alloc(size, optimizer) for size in sizes]
        for it in scratch:
            device.release(it, optimizer)
        for it in [*batch, loss]:
            device.release(it, backward)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("events", type=int)
    parser.add_argument("out")
    args = parser.parse_args()
    device = Device()
    train(device, args.events)
    settings = {
        "PYTORCH_CUDA_ALLOC_CONF": "",
        "max_split_size": -1,
        "garbage_collection_threshold": 0.0,
        "expandable_segments": False,
        "roundup_power2_divisions": {str(1 << it): 0 for it in range(16)},
    }
    snapshot = {
        "segments": device.state(),
        "device_traces": [device.events],
        "allocator_settings": settings,
        "external_annotations": [],
    }
    with open(args.out, "wb") as file:
        # What `_dump_snapshot` does; protocol 4 has been Python's default from 3.8 to 3.13.
        pickle.dump(snapshot, file, protocol=4)


if __name__ == "__main__":
    main()
