"""Random programs for PyTorch's allocator, run by the real one on the phantom: a recording of each, and what
the allocator itself counted.

    programs.py FOLDER FIRST LAST [--named-pools] [--flags]

runs the programs with these seeds, each in a process of its own, and writes, for each and for places inside it, FOLDER/SEED-N.pickle,
the recording up to there, and FOLDER/SEED-N.json: `settings`, `limit` (bytes that the allocator may take, if it
is limited), for each device what `memory_stats` said, and `asked`: every request of this program, in order, as
[device, address, size, pool], without an address when it failed and without a pool when it was the default one's.
With `--named-pools`, pools and graphs live to the end, where the recording names them: torch 2.11 gives
events no pool. With `--flags`, some pools never split a segment, and some serve when nothing else does (torch 2.10).

Runs under torch 2.6 and later, with what that release has; under 2.11 a seed's program is the same as ever.
"""

import ctypes
import json
import os
import pathlib
import random
import sys

import torch

KIB, MIB = 1 << 10, 1 << 20
# At and around the allocator's own limits.
LIMITS = [512, MIB, 2 * MIB, 10 * MIB, 20 * MIB, 32 * MIB, 64 * MIB]
N_STEPS = 500
# Half of all programs have torch's own.
LARGE_SEGMENTS = [20, 20, 20, 20, 12, 30, 64, 128]
RELEASE = tuple(map(int, torch.__version__.split(".")[:2]))


def settings(r, large, later):
    """The text of PYTORCH_CUDA_ALLOC_CONF: often nothing, often one thing, sometimes several together. `later` is the source
    for what releases after 2.11 have."""
    choices = {
        "max_split_size_mb": lambda: r.choice([20, 21, 32, 64, 128]),
        "roundup_power2_divisions": lambda: r.choice(
            [1, 2, 4, 8, 16, "[256:1,512:2,1024:4,>:8]", "[1:4,4:1,16:8,64:2]", "[2:2,>:4]", "[64:8]"]
        ),
        "garbage_collection_threshold": lambda: r.choice([0.2, 0.5, 0.6, 0.8, 0.95]),
        "max_non_split_rounding_mb": lambda: r.choice([21, 40, 200]),
        "expandable_segments": lambda: "True",
    }
    n = r.choice([0, 1, 1, 1, 2, 2, 3, 5])
    chosen = {key: choices[key]() for key in r.sample(list(choices), n)}
    for key in ["max_split_size_mb", "max_non_split_rounding_mb"]:
        # Since torch 2.11 a smaller one is refused; until 2.9 one of 20, too.
        if key in chosen:
            chosen[key] = max(chosen[key], large, 20 + (RELEASE < (2, 10)))
    if (2, 12) <= RELEASE and later.random() < 0.15:
        chosen["throw_on_cudamalloc_oom"] = "True"
    if (2, 15) <= RELEASE and "expandable_segments" in chosen and later.random() < 0.4:
        chosen["expandable_segments_reserve"] = later.choice([1.125, 2, 0.4, 0.1, 0.03])
    # torch checks the others against it while it reads them.
    first = {} if large == 20 else {"large_segment_size_mb": large, "max_non_split_rounding_mb": max(large, 20)}
    return ",".join(f"{key}:{value}" for key, value in (first | chosen).items())


def sizes(r):
    """One distribution of sizes, as a function that draws from it."""
    few = [r.randrange(1, 40 * MIB) for _ in range(r.randrange(2, 9))]
    top = r.choice([24, 26, 28])
    return r.choice(
        [
            lambda: r.randrange(1, 64 * KIB),
            lambda: max(1, r.choice(LIMITS) + r.choice([-513, -512, -1, 0, 1, 511, 512])),
            lambda: r.randrange(MIB, 60 * MIB),
            lambda: int(2 ** r.uniform(0, top)),
            lambda: r.choice(few),
            lambda: r.choice(few) + r.randrange(0, 4 * KIB),
        ]
    )


class Full(Exception):
    """Nothing fits any more."""


class Program:
    """What one program has, and what it does."""

    def __init__(self, r, n_devices, keeps_pools, flags):
        self.keeps_pools = keeps_pools
        self.flags = flags
        self.r = r
        self.live = []
        self.events = []
        self.size = [sizes(r) for _ in range(r.randrange(1, 4))]
        self.pools = []
        self.active = []
        self.is_limited = False
        self.graphs = []
        self.asked = []
        self.devices = [0] if r.random() < 0.7 else list(range(n_devices))
        n_streams = r.choice([1, 1, 1, 2, 3])
        self.streams = {
            device: [torch.cuda.default_stream(device)] + [torch.cuda.Stream(device) for _ in range(n_streams - 1)]
            for device in self.devices
        }
        self.other = {device: torch.cuda.Stream(device) for device in self.devices}
        self.growth = r.choice([0.5, 0.52, 0.56, 0.6])
        self.uses_pools = r.random() < 0.3
        self.uses_graphs = r.random() < 0.15
        self.uses_record_stream = r.random() < 0.4

    def note(self, device, address, size):
        # Of nested pools the innermost serves; they are all of device 0.
        pool = self.active[-1].id if self.active and device == 0 else None
        self.asked.append([device, address, size, pool])

    def allocate(self, size=None):
        r = self.r
        device = r.choice(self.devices)
        size = r.choice(self.size)() if size is None else size
        with torch.cuda.device(device), torch.cuda.stream(r.choice(self.streams[device])):
            try:
                self.live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
                self.note(device, self.live[-1].data_ptr(), size)
            except torch.OutOfMemoryError:
                self.note(device, None, size)
                keep = r.choice([0, 2, 3])
                self.live = self.live[::keep] if keep else []

    def free(self):
        if not self.live:
            return
        r = self.r
        place = r.choice([0, -1, r.randrange(len(self.live)), r.randrange(len(self.live))])
        tensor = self.live.pop(place)
        if self.uses_record_stream and r.random() < 0.5:
            with torch.cuda.device(tensor.device):
                tensor.record_stream(self.other[tensor.device.index])

    def resize(self):
        if self.live:
            place = self.r.randrange(len(self.live))
            tensor = self.live[place]
            device, before = tensor.device.index, tensor.data_ptr()
            size = self.r.choice(self.size)()
            try:
                with torch.cuda.device(device):
                    tensor.resize_(size)
                # A smaller one asks for nothing.
                if tensor.data_ptr() != before:
                    self.note(device, tensor.data_ptr(), size)
            except torch.OutOfMemoryError:
                self.note(device, None, size)
                self.live.pop(place)

    def in_pool(self, depth=0):
        r = self.r
        # One that is in use already cannot be used again inside.
        idle = [it for it in self.pools if it not in self.active]
        if not idle or r.random() < 0.5:
            with torch.cuda.device(0):
                since = {"use_on_oom": (2, 8), "no_split": (2, 10)}
                flags = {key: self.flags.random() < 0.2 for key in since if self.flags and since[key] <= RELEASE}
                idle = [torch.cuda.MemPool(**flags)]
            self.pools += idle
        pool = r.choice(idle)
        self.active.append(pool)
        with torch.cuda.device(0), torch.cuda.use_mem_pool(pool):
            for _ in range(r.randrange(1, 20)):
                self.step(depth + 1)
        self.active.remove(pool)
        if r.random() < 0.3 and not self.keeps_pools:
            self.pools.pop(r.randrange(len(self.pools)))

    def capture(self):
        r = self.r
        torch.cuda.synchronize()
        # torch aborts when there is no room for the first two bytes of a graph.
        if self.is_limited or torch.cuda.mem_get_info(0)[0] < 64 * MIB:
            return
        graph = torch.cuda.CUDAGraph()
        pool = r.choice(self.graphs).pool() if self.graphs and r.random() < 0.3 else None
        kept = []
        asked = []
        size = 0
        with torch.cuda.device(0):
            try:
                with torch.cuda.graph(graph, pool=pool):
                    for _ in range(r.randrange(1, 8)):
                        size = r.choice(self.size)()
                        kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
                        asked.append([0, kept[-1].data_ptr(), size])
                        if kept and r.random() < 0.4:
                            kept.pop(r.randrange(len(kept)))
            except torch.OutOfMemoryError:
                # Its pool has no name that a program could read.
                name = pool or ("failed", len(self.asked))
                self.asked += [[*it, name] for it in [*asked, [0, None, size]]]
                return
        self.asked += [[*it, graph.pool()] for it in asked]
        self.graphs.append(graph)
        if r.random() < 0.5:
            self.live.extend(kept)
        if r.random() < 0.4 and not self.keeps_pools:
            self.graphs.pop(r.randrange(len(self.graphs)))

    def step(self, depth=0):
        x = self.r.random()
        if x < self.growth:
            self.allocate()
        elif x < 0.955:
            self.free()
        elif x < 0.975:
            self.resize()
        elif x < 0.985:
            torch.cuda.empty_cache()
        elif x < 0.99:
            self.live = self.live[len(self.live) // 2 :]
        elif x < 0.995 and self.uses_pools and depth < 2:
            self.in_pool(depth)
        elif x >= 0.995 and self.uses_graphs and depth == 0:
            self.capture()


def record(path, known, program):
    torch.cuda.memory._dump_snapshot(f"{path}.pickle")
    stats = {device: dict(torch.cuda.memory_stats(device)) for device in program.devices}
    pathlib.Path(f"{path}.json").write_text(json.dumps(known | dict(stats=stats, asked=program.asked)))


def run(seed, folder, keeps_pools, has_flags):
    r = random.Random(seed)
    # Another source, so that a program is the same otherwise.
    flags = random.Random(f"flags {seed}") if has_flags else None
    torch.cuda.init()
    large = r.choice(LARGE_SEGMENTS)
    text = settings(r, large if (2, 11) <= RELEASE else 20, random.Random(f"later {seed}"))
    if text:
        of_2_6 = getattr(torch._C, "_cuda_cudaCachingAllocator_set_allocator_settings", None)
        getattr(torch._C, "_accelerator_setAllocatorSettings", of_2_6)(text)
    program = Program(r, torch.cuda.device_count(), keeps_pools, flags)
    # Often less than the card has, so that requests fail; collection of garbage needs a limit.
    is_limited = r.random() < (0.8 if "garbage" in text else 0.4)
    fraction = r.choice([0.05, 0.1, 0.2, 0.5]) if is_limited else 1.0
    program.is_limited = is_limited
    for device in program.devices:
        torch.cuda.set_per_process_memory_fraction(fraction, device)
    # Or somebody else has it.
    driver = ctypes.CDLL("libcuda.so.1")
    other = ctypes.c_uint64()
    if r.random() < 0.4:
        free = torch.cuda.mem_get_info(0)[0]
        size = int(free * r.choice([0.5, 0.8, 0.9, 0.95])) // (2 * MIB) * (2 * MIB)
        assert driver.cuMemAlloc_v2(ctypes.byref(other), ctypes.c_size_t(size)) == 0
    total = torch.cuda.get_device_properties(0).total_memory
    known = dict(
        settings=text,
        fraction=fraction,
        total=total,
        limit=int(total * fraction) if fraction < 1 else None,
        capacity={device: torch.cuda.mem_get_info(device)[0] for device in program.devices},
        keeps_pools=keeps_pools,
        pools=program.uses_pools,
        graphs=program.uses_graphs,
    )
    stacks = r.choice([dict(context="all"), dict(context="all"), dict(context="alloc"), dict(context=None)])
    known["stacks"] = stacks["context"] == "all"
    torch.cuda.memory._record_memory_history("all", stacks="python", **stacks)
    # Not before something has happened on every device.
    places = {max(20, r.randrange(N_STEPS)) for _ in range(2)}
    n = 0
    try:
        for step in range(N_STEPS):
            program.step()
            if step in places:
                record(f"{folder}/{seed:05}-{n}", known, program)
                n += 1
        record(f"{folder}/{seed:05}-{n}", known, program)
    finally:
        torch.cuda.memory._record_memory_history(None)
        if other:
            driver.cuMemFree_v2(other)


def main():
    folder, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    failed = []
    for seed in range(first, last):
        # A child has imported torch and has no device yet: its allocator is new. What an earlier program leaves in
        # one, such as the address range and the granule of an expandable segment, no recording would show.
        child = os.fork()
        if child == 0:
            run(seed, folder, "--named-pools" in sys.argv, "--flags" in sys.argv)
            sys.stdout.flush()
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            failed.append(seed)
    if failed:
        sys.exit(f"programs that did not end well: {failed}")


if __name__ == "__main__":
    main()
