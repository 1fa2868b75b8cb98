"""Python objects, and a few whole numbers, that ranks send each other over NCCL, and barriers where they wait for each other.

On a phantom no bytes arrive at another rank, and an object that is half pickled cannot be read. Where
the other ranks are processes, they go through the group's store, which is real; where some of them are
processes and the rest is imagined (`PLIMSOLL_TOGETHER`), through files of the session. From an imagined rank
nothing comes: the list of who would have received stays as it is, and the report says so. Groups on the host
(gloo) need this for imagined ranks only.
"""

from __future__ import annotations

import functools
import inspect
import os
import pickle
import sys
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plimsoll_agent import settings
from plimsoll_agent.values.phantom import bytes_of, set_bytes

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Function, Named, Tensor, Torch
    from plimsoll_agent.run.recording import Recording


MOST_NUMBERS = 8192
"""Tensors with more of them are data."""
PATIENCE = 30.0
"""Seconds that a rank waits for others at a barrier, or for their numbers: they may have ended because enough was seen of them. After that it waits
for none."""
MOST_STAGES = 64
"""A group of more ranks is more than one machine runs at once."""


class _Letters:
    """A store between ranks that are processes of one session: a file for each key. What is not there yet is waited for; the
    command line ends who waits for a process that is gone."""

    def __init__(self, session: str) -> None:
        self._folder = Path(session, "letters")

    def set(self, key: str, value: bytes) -> None:
        self._folder.mkdir(exist_ok=True)
        path = self._path(key)
        whole = path.with_suffix(".%d" % os.getpid())
        whole.write_bytes(value)
        whole.replace(path)

    def check(self, keys: list[str]) -> bool:
        return all(self._path(it).exists() for it in keys)

    def get(self, key: str) -> bytes:
        while not self.check([key]):
            time.sleep(0.01)
        return self._path(key).read_bytes()

    def _path(self, key: str) -> Path:
        return self._folder / key.replace("/", "-")


class Objects:
    """The object collectives of `torch.distributed`, in this process."""

    def __init__(self, c10d: Torch, imagined: Any, recording: Recording) -> None:
        self._c10d = c10d
        self._imagined = imagined
        self._recording = recording
        self._note = recording.note
        self._letters = _Letters(recording.session)
        self._has_told = self._is_alone = False
        self._counts: dict[Any, Any] = {}
        # What this process sent last, and so what an imagined rank is taken to send.
        self._sent: bytes | None = None

    def replacements(self) -> Named:
        """The functions, by name."""
        names = (
            "barrier",
            "broadcast",
            "broadcast_object_list",
            "send_object_list",
            "recv_object_list",
            "scatter_object_list",
            "all_gather_object",
            "gather_object",
        )
        return {name: self._instead_of(getattr(self._c10d, name), getattr(self, "_" + name)) for name in names}

    def _instead_of(self, real: Function, ours: Any) -> Function:
        @functools.wraps(real)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                given = signature.bind(*args, **kwargs)
            except TypeError:
                return real(*args, **kwargs)
            group = self._group(given)
            if group is None or not (self._imagined() or self._is_on_device(group)):
                return real(*args, **kwargs)
            # By position: the names of the arguments are PyTorch's affair.
            given.apply_defaults()
            return ours(real, *given.args)

        signature = inspect.signature(real)
        return call

    def _group(self, given: Any) -> Any:
        """The group of a call; None if this process is in none, which is the real function's affair."""
        group = given.arguments.get("group") or (self._c10d._get_default_group() if self._c10d.is_initialized() else None)
        is_in_it = group is not None and not self._c10d._rank_not_in_group(group)
        return group if is_in_it else None

    def _is_on_device(self, group: Any) -> bool:
        # A host backend may be wanted all the same, and between processes that one is real.
        return "cuda" in str(self._c10d._get_object_coll_device(group))

    # Each has the arguments of the real function, after that function itself.

    def _barrier(self, real: Function, group: Any = None, async_op: Any = False, *args: Any) -> Any:
        """What the first rank writes to a file before it, the others read after it."""
        work = real(group, async_op, *args)
        group, _ = self._with(group, None, 0)
        others = [it for it in range(group.size()) if it != group.rank() and self._is_process(group, it)]
        if others and not async_op and self._has_company():
            key = self._key(group, "barrier")
            self._store(group).set("%s/%d" % (key, group.rank()), b"")
            self._come(group, ["%s/%d" % (key, it) for it in others])
        return work

    def _has_company(self) -> bool:
        """Whether other ranks of the job are processes."""
        return not self._imagined() or bool(settings.together())

    def _come(self, group: Any, keys: list[str]) -> bool:
        """Waits until other ranks have set these; false if they do not."""
        store, end = self._store(group), time.monotonic() + PATIENCE
        while not store.check(keys):
            self._is_alone = self._is_alone or end < time.monotonic()
            if self._is_alone:
                return False
            time.sleep(0.01)
        return True

    def _broadcast(self, real: Function, tensor: Tensor, src: Any = None, group: Any = None, async_op: Any = False, group_src: Any = None) -> Any:
        """Lengths, seeds and settings, which ranks compare with their own."""
        work = real(tensor, src=src, group=group, async_op=async_op, group_src=group_src)
        group, source = self._with(group, src, group_src)
        is_of_numbers = tensor.is_cuda and not tensor.is_floating_point() and not tensor.is_complex() and 0 < tensor.numel() <= MOST_NUMBERS
        if not is_of_numbers or not self._is_process(group, source) or not self._has_company():
            return work
        key = self._key(group, "numbers", source)
        if group.rank() == source:
            self._put(group, key, bytes_of(tensor))
        elif self._come(group, [key]):
            numbers = self._take(group, key)
            if numbers is not None:
                set_bytes(tensor, numbers)
        return work

    def _broadcast_object_list(
        self, real: Function, object_list: Any, src: Any = None, group: Any = None, device: Any = None, group_src: Any = None
    ) -> Any:
        group, source = self._with(group, src, group_src)
        if not self._is_process(group, source):
            return self._unknown("broadcast_object_list")
        if self._imagined() and group.rank() == source:
            real(object_list, src=src, group=group, device=device, group_src=group_src)
            if not self._has_company():
                return None
        key = self._key(group, "broadcast", source)
        if group.rank() == source:
            self._put(group, key, list(object_list))
        else:
            object_list[:] = self._take(group, key)

    def _send_object_list(
        self, real: Function, object_list: Any, dst: Any = None, group: Any = None, device: Any = None, group_dst: Any = None, use_batch: bool = False
    ) -> None:
        group, target = self._with(group, dst, group_dst)
        # The bytes of the objects go through the device.
        real(object_list, group=group, device=device, group_dst=target, use_batch=use_batch)
        if self._imagined():
            self._sent = pickle.dumps(list(object_list))
            self._tell_who_is_sent_to(group)
        if self._is_process(group, target):
            self._put(group, self._key(group, "send", group.rank(), target), list(object_list))

    def _recv_object_list(
        self, real: Function, object_list: Any, src: Any = None, group: Any = None, device: Any = None, group_src: Any = None, use_batch: bool = False
    ) -> Any:
        group, source = self._with(group, src, group_src)
        if self._imagined():
            self._tell_who_is_sent_to(group)
        if self._is_process(group, source):
            objects = self._take(group, self._key(group, "send", source, group.rank()))
        else:
            objects = [] if self._sent is None else pickle.loads(self._sent)
        if len(objects) == len(object_list):
            self._receive(objects, source, group, device, use_batch)
            object_list[:] = objects
        else:
            self._unknown("recv_object_list")
        return self._c10d.get_global_rank(group, source)

    def _receive(self, objects: list[Any], source: int, group: Any, device: Any, use_batch: bool) -> None:
        """Takes the memory that PyTorch's `recv_object_list` takes for `objects`, in the same order."""
        torch, c10d = sys.modules["torch"], self._c10d
        device = device or c10d._get_object_coll_device(group)

        def receive(tensor: Any) -> None:
            if use_batch:
                c10d.batch_isend_irecv([c10d.P2POp(c10d.irecv, tensor, group_peer=source, group=group)]).pop().wait()
            else:
                c10d.recv(tensor, group=group, group_src=source)

        on_host = torch.tensor([len(pickle.dumps(it)) for it in objects])
        sizes = torch.empty(len(objects), dtype=torch.long, device=device)
        receive(sizes)
        torch.sum(sizes)
        receive(torch.empty(int(on_host.sum()), dtype=torch.uint8, device=device))
        offset: Any = 0
        for size in sizes:
            offset + size
            offset = offset + size

    def _scatter_object_list(
        self, real: Function, out: Any, inputs: Any = None, src: Any = None, group: Any = None, group_src: Any = None
    ) -> None:
        group, source = self._with(group, src, group_src)
        self._message(group, self._c10d.scatter, source, group_src=source)
        key = self._key(group, "scatter", source)
        if group.rank() == source:
            out[0] = inputs[source]
            if not self._imagined():
                self._put(group, key, list(inputs))
        elif self._imagined():
            self._unknown("scatter_object_list")
        else:
            out[0] = self._take(group, key)[group.rank()]

    def _all_gather_object(self, real: Function, object_list: Any, obj: Any, group: Any = None) -> None:
        group, _ = self._with(group, None, 0)
        if self._imagined():
            # Not the real one: it would compare sizes on the device, which computes nothing.
            data = pickle.dumps(obj)
            object_list[:] = [pickle.loads(data) for _ in range(group.size())]
            return
        keys = [self._key(group, "gather", rank) for rank in range(group.size())]
        self._put(group, keys[group.rank()], obj)
        for rank, key in enumerate(keys):
            object_list[rank] = self._take(group, key)

    def _gather_object(
        self, real: Function, obj: Any, object_gather_list: Any = None, dst: Any = None, group: Any = None, group_dst: Any = None
    ) -> None:
        group, target = self._with(group, dst, group_dst)
        self._message(group, self._c10d.gather, target, group_dst=target)
        everybody = [None] * group.size()
        self._all_gather_object(real, everybody, obj, group)
        if group.rank() == target:
            object_gather_list[:] = everybody

    def _message(self, group: Any, collective: Any, root: int, **to: Any) -> None:
        """A byte goes the way that the objects would have gone: NCCL takes memory for it."""
        torch = sys.modules["torch"]
        device = self._c10d._get_object_coll_device(group)
        byte = functools.partial(torch.zeros, 1, dtype=torch.uint8, device=device)
        everybody = [byte() for _ in range(group.size())] if group.rank() == root else None
        collective(byte(), everybody, group=group, **to)

    def _with(self, group: Any, rank: Any, group_rank: Any) -> tuple[Any, Any]:
        """The group, and the number in it of the rank that was named in one way or the other."""
        group = group or self._c10d._get_default_group()
        if group_rank is not None:
            return group, group_rank
        return group, self._c10d.get_group_rank(group, 0 if rank is None else rank)

    def _is_process(self, group: Any, rank: int) -> bool:
        """Whether this rank of the group runs, and does not only send what this process sends."""
        return not self._imagined() or rank == group.rank() or self._c10d.get_global_rank(group, rank) in settings.together()

    def _tell_who_is_sent_to(self, group: Any) -> None:
        """Ranks that send each other objects one to one are of different kinds, as the stages of a pipeline are."""
        if not self._has_told:
            self._has_told = True
            ranks = list(self._c10d.get_process_group_ranks(group))
            if len(ranks) <= MOST_STAGES:
                self._recording.write("stages", ranks=ranks)

    def _key(self, group: Any, *what: Any) -> str:
        """A name that both sides of this call, and of no other, arrive at."""
        # A group has a store of its own; letters of all groups lie in one folder.
        of = zlib.crc32(repr(self._c10d.get_process_group_ranks(group)).encode()) if self._imagined() else id(group)
        name = "/".join(map(str, ("plimsoll",) + what))
        count = self._counts[of, name] = self._counts.get((of, name), 0) + 1
        if self._imagined():
            name += "/%08x" % of
        return "%s/%d" % (name, count)

    def _put(self, group: Any, key: Any, value: Any) -> None:
        self._store(group).set(key, pickle.dumps(value))

    def _take(self, group: Any, key: Any) -> Any:
        return pickle.loads(self._store(group).get(key))

    def _store(self, group: Any) -> Any:
        return self._letters if self._imagined() else self._c10d._get_process_group_store(group)

    def _unknown(self, name: str) -> None:
        self._note(
            "unknown-objects",
            "%s expects Python objects from a rank that plimsoll imagines, and got none; --all-ranks runs every "
            "rank of this machine" % name,
        )
