"""PyTorch's own memory history: started before the first allocation, counted with, dumped at the end.

Three things of PyTorch's are taken over, because a script may use them too and would otherwise end
our recording or move our counters: switching the history on and off, and resetting the statistics.
The script keeps what it asked for: a history that is on records all that it wants, and more.

Why stacks are recorded for allocations only (context "alloc"): with "all", PyTorch 2.11 also gathers a
stack on every free, and `PythonTraceback::gatherForwardTraceback` clears the Python error indicator
while it does. A free while an exception is on its way out of C++ then loses that exception, and
the call "returned NULL without setting an exception". Non-reentrant checkpointing stops each
recomputation with an exception, so it would crash. Never switch this to "all".
"""

from __future__ import annotations

import gc
import math
import os
import pickle
import re
import threading
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Arguments, Function, Torch
    from plimsoll_agent.run.recording import Recording
    from plimsoll_agent.settings import Settings


class Memory:
    """The allocator's history and counters in this process."""

    def __init__(self, torch: Torch, recording: Recording, asked: Settings) -> None:
        self._torch = torch
        self._c = torch._C
        self._recording, self._note = recording, recording.note
        self._start_history = torch._C._cuda_record_memory_history
        self._reset_accumulated = torch._C._cuda_resetAccumulatedMemoryStats
        self._reset_peaks = torch._C._cuda_resetPeakMemoryStats
        self._most_events, self._settings_before = asked.most_events, asked.allocator
        self._has_no_end = asked.most_reserved < 0
        # A search for an engine asks only what it plans: stacks of its many requests take seconds at its end.
        self._context = None if asked.engine else "alloc"
        self.started = False
        # Whether the history stays off until a recording is asked for; until then the script's own history stays unchanged.
        self.asleep = self._theirs = False
        self.devices = 0
        # What the script's resets took from the counters, by device.
        self._forgotten: dict[int, dict[str | tuple[str, str], int]] = {}
        self._peaks_before_reset: dict[int, dict[str, int]] = {}

    def take_over(self) -> None:
        """Puts our functions where the script would reach PyTorch's."""
        c = self._c
        patch.put(c, "_cuda_record_memory_history", self._asked_for_history)
        patch.put(c, "_cuda_record_memory_history_legacy", self._asked_for_history)
        patch.put(c, "_cuda_resetAccumulatedMemoryStats", self._asked_to_reset_counters)
        patch.put(c, "_cuda_resetPeakMemoryStats", self._asked_to_reset_peaks)
        if self._has_no_end:
            patch.replace(c, "_cuda_setMemoryFraction", _without_a_limit)
        for name in ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings"):
            if hasattr(c, name):
                patch.put(c, name, self._noting_settings(getattr(c, name)))

    def start(self) -> None:
        """Starts the history. Runs inside CUDA's own initialisation, before any allocation."""
        if self.started:
            return
        if not self.asleep:
            self._set_history(self._context)
        self.devices = self._c._cuda_getDeviceCount()
        self.started = True

    def keep_stacks(self, kept: bool) -> None:
        """From now on events come with stacks, or without. Those that were recorded stay: PyTorch empties its ring
        only when the history is switched off or asked to be cleared."""
        if not self.started or self._theirs:
            return
        if kept or not self.asleep:
            self._set_history(self._context if kept else None)
        else:
            self._set_history(None, on=None)

    def wake(self) -> None:
        """From now on all is recorded."""
        if self.asleep:
            self.asleep = False
            if self.started:
                self._set_history("alloc")

    def _set_history(self, context: str | None, on: str | None = "all") -> None:
        # What each of PyTorch 2.6-2.7, 2.8-2.10, 2.11 and 2.15 added comes last: all of it off, nothing to leave
        # out, the device's memory and not the host's.
        arguments: Arguments = (on, context, "python", self._most_events, False, False, False, [], False, True)
        self._start_history(*arguments[: _n_arguments(self._start_history, len(arguments))])

    def limit(self, most: int) -> None:
        """What the allocator may reserve on each device, in bytes, as
        `torch.cuda.set_per_process_memory_fraction` would limit it; 0 for no limit, -1 for none that the script sets either."""
        if most <= 0:
            return
        for device in range(self.devices):
            total = self._torch.cuda.mem_get_info(device)[1]
            share = min(1.0, most / total)
            while int(share * total) < min(most, total):
                share = math.nextafter(share, 2.0)
            self._c._cuda_setMemoryFraction(min(share, 1.0), device)

    def note_another_allocator(self) -> None:
        """Where the script has one: what it does is not seen."""
        if self._torch.cuda.memory.get_allocator_backend() != "native":
            self._note("allocator", "the script replaces PyTorch's caching allocator; plimsoll can record only the native one")

    def forked(self) -> None:
        """In a forked child whose parent had no CUDA yet: everything begins anew."""
        self.started = False
        self.devices = 0
        self._forgotten.clear()
        self._peaks_before_reset.clear()

    def _asked_for_history(self, *args: Any, **kwargs: Any) -> Any:
        """The script switches the history on or off, or changes it. The agent's is already on and stays on."""
        if self.asleep:
            self._theirs = (args[0] if args else kwargs.get("enabled")) is not None
            return self._start_history(*args, **kwargs)
        self._note(
            "memory-history",
            "the script records PyTorch's memory history itself; plimsoll's recording stays on instead, and "
            "snapshots that the script dumps contain all of it",
        )

    def _asked_to_reset_counters(self, device: int) -> Any:
        self._remember_counters(device)
        return self._reset_accumulated(device)

    def _asked_to_reset_peaks(self, device: int) -> Any:
        self._remember_peaks(device)
        return self._reset_peaks(device)

    def _noting_settings(self, real: Function) -> Function:
        """`real` changes the allocator's settings; PyTorch's snapshot has only the last ones, so each change is written down."""

        def call(text: str) -> Any:
            result = real(text)
            self._note_settings(text)
            return result

        return call

    @guarded
    def _note_settings(self, text: str) -> None:
        self._recording.write("settings", before=self._settings_before, text=text, **self.place().where())

    @guarded
    def _remember_counters(self, device: int) -> None:
        if self.started:
            stats = self._c._cuda_memoryStats(device)
            lost = self._forgotten.setdefault(device, {})
            for name in ("allocation", "requested_bytes", "segment"):
                for part in ("allocated", "freed"):
                    lost[name, part] = lost.get((name, part), 0) + stats[name]["all"][part]
            for name in ("num_alloc_retries", "num_ooms"):
                lost[name] = lost.get(name, 0) + stats[name]

    @guarded
    def _remember_peaks(self, device: int) -> None:
        if self.started:
            stats = self._c._cuda_memoryStats(device)
            kept = self._peaks_before_reset.setdefault(device, {})
            for name in ("allocated_bytes", "reserved_bytes"):
                kept[name] = max(kept.get(name, 0), stats[name]["all"]["peak"])

    def name(self, device: int) -> str:
        """What the driver calls it."""
        return str(self._torch.cuda.get_device_name(device))

    def place(self) -> Place:
        """Where the run is now: counters of every device, exact also after resets."""
        place = Place()
        for device in range(self.devices if self.started else 0):
            stats = self._c._cuda_memoryStats(device)
            lost = self._forgotten.get(device, {})
            kept = self._peaks_before_reset.get(device, {})
            count, size = stats["allocation"]["all"], stats["allocated_bytes"]["all"]
            reserved = stats["reserved_bytes"]["all"]
            place.allocs.append(count["allocated"] + lost.get(("allocation", "allocated"), 0))
            place.frees.append(count["freed"] + lost.get(("allocation", "freed"), 0))
            place.allocated.append(size["current"])
            place.reserved.append(reserved["current"])
            # Requested bytes: a block may be larger than its request, depending on its neighbours.
            asked = stats["requested_bytes"]["all"]
            place.live.append((count["current"], asked["current"]))
            place.bytes_so_far.append(asked["allocated"] + lost.get(("requested_bytes", "allocated"), 0))
            place.peaks.append(
                (
                    max(size["peak"], kept.get("allocated_bytes", 0)),
                    max(reserved["peak"], kept.get("reserved_bytes", 0)),
                )
            )
        return place

    def totals(self) -> list[dict[str, int]]:
        """One dict a device that was used: PyTorch's statistics over the whole run."""
        totals = []
        for device, peaks in enumerate(self.place().peaks):
            stats = self._c._cuda_memoryStats(device)
            lost = self._forgotten.get(device, {})
            allocs = stats["allocation"]["all"]["allocated"] + lost.get(("allocation", "allocated"), 0)
            if allocs == 0 and stats["num_ooms"] == 0:
                continue
            totals.append(
                {
                    "device": device,
                    "peak_allocated": peaks[0],
                    "peak_reserved": peaks[1],
                    "allocs": allocs,
                    "frees": stats["allocation"]["all"]["freed"] + lost.get(("allocation", "freed"), 0),
                    "retries": stats["num_alloc_retries"] + lost.get("num_alloc_retries", 0),
                    "ooms": stats["num_ooms"] + lost.get("num_ooms", 0),
                    "segments": stats["segment"]["all"]["allocated"] + lost.get(("segment", "allocated"), 0),
                    **self._own_limit(device),
                }
            )
        return totals

    def _own_limit(self, device: int) -> dict[str, int]:
        """What the script itself lets the allocator take (`set_per_process_memory_fraction`), if less than all."""
        fraction = getattr(self._c, "_cuda_getMemoryFraction", None)  # Since torch 2.7.
        share = 1.0 if fraction is None else float(fraction(device))
        return {"limit": int(share * self._torch.cuda.mem_get_info(device)[1])} if share < 1 else {}

    def dump(self, path: str) -> None:
        """Writes the snapshot in PyTorch's own format.

        As `torch.cuda.memory._dump_snapshot` does, but without the cycle collector: building tens of
        thousands of dicts would run it again and again over everything the program has.
        """
        if not self.started:
            return
        collecting = gc.isenabled()
        gc.disable()
        not_imported = patch.replace(self._torch, "__getattr__", _without_inductor)
        try:
            try:
                snapshot = self._c._cuda_memorySnapshot(None)  # Of all pools.
            except TypeError:  # Before PyTorch 2.8 there was no choice.
                snapshot = self._c._cuda_memorySnapshot()
            # Whole or absent: a process that is killed here must not leave half a file.
            part = path + ".part"
            with open(part, "wb") as file:
                pickle.Pickler(file, protocol=4).dump(snapshot)
            os.replace(part, path)
        finally:
            if not_imported is not None:
                not_imported.undo()
            if collecting:
                gc.enable()


def _without_a_limit(_: Function) -> Function:
    """Memory does not end in this run, and what the script asks for after that is to be seen."""
    return lambda *_: None


def _without_inductor(attribute: Function) -> Function:
    """`torch.__getattr__` without the import of the compiler in this thread: PyTorch asks whether there is a `torch._inductor` that knows
    lines of compiled code, and the question alone imports it, for two seconds. Where something is compiled it is imported already."""
    here = threading.get_ident()

    def of_torch(name: str) -> Any:
        if name == "_inductor" and threading.get_ident() == here:
            raise AttributeError(name)
        return attribute(name)

    return of_torch


def _n_arguments(function: Function, most: int) -> int:
    """How many arguments a function of PyTorch's own says that it takes, `most` if it does not say."""
    return len(set(re.findall(r"\barg\d+\b", function.__doc__ or ""))) or most


class Place:
    """A place in every device's trace, and what memory looks like there. Lists are by device."""

    __slots__ = ("allocs", "frees", "allocated", "reserved", "live", "bytes_so_far", "peaks", "host")

    def __init__(self) -> None:
        self.allocated: list[int]
        self.frees: list[int]
        self.allocs: list[int]
        self.reserved: list[int]
        self.allocs, self.frees, self.allocated, self.reserved = [], [], [], []
        self.peaks: list[tuple[int, int]]
        self.bytes_so_far: list[int]
        self.live: list[tuple[int, int]]
        self.live, self.bytes_so_far, self.peaks = [], [], []
        self.host: dict[str, int | None] | None = None

    @property
    def lives(self) -> int:
        """Bytes, of all devices."""
        return sum(size for _, size in self.live)

    def where(self) -> dict[str, list[int]]:
        """The place alone, for a line of the recording."""
        return {"allocs": self.allocs, "frees": self.frees}

    def fields(self) -> dict[str, list[int]]:
        """The place and the amounts, for a mark."""
        return {
            "allocs": self.allocs,
            "frees": self.frees,
            "reserved": self.reserved,
            "allocated": self.allocated,
        }
