"""What a call of a model changes beside its result: random states, buffers, and attributes of modules.

The agent compares all of them before and after the first call of a model. From then on it stores only those that changed, for each
call. It does not store a large buffer; a call that wrote into one is not repeated.
"""

from __future__ import annotations

import collections
import contextlib
from typing import TYPE_CHECKING, Any

from plimsoll_agent.run.host_random import HostRandom
from plimsoll_agent.survive import CannotRedo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plimsoll_agent.kinds import Module, Tensor, Torch

_SMALL = 1 << 20
"""The largest buffer that is stored, in bytes."""

_SHORT = 4096
"""The longest list that is stored, in entries."""

_MISSING = object()
_PLAIN = (int, float, bool, str, bytes, type(None))
_CONTAINERS = (list, dict, set, collections.deque)


class Places:
    """Where a model may keep something, and which of these places move when it is called."""

    def __init__(self, torch: Torch, module: Module | None) -> None:
        """Of a function that is a loss `module` is None: there are only random numbers."""
        self._torch = torch
        own = set(vars(torch.nn.Module()))
        self._all: list[_Buffer | _Attribute] = []
        for name, part in module.named_modules() if module is not None else ():
            shown = name + "." if name else ""
            self._all += [_Buffer(part, it, shown + it) for it in part._buffers]
            self._all += [
                _Attribute(part, it, shown + it)
                for it, value in vars(part).items()
                if it not in own and isinstance(value, (*_PLAIN, *_CONTAINERS, torch.Tensor, torch.Generator))
            ]
        self._moving: list[_Buffer | _Attribute] | None = None
        self._devices = sorted({it.device.index for it in module.parameters() if it.is_cuda}) if module is not None else []

    def now(self) -> Then:
        """Everything as it is."""
        devices = self._devices
        if not devices and self._torch.cuda.is_initialized():
            devices = [self._torch.cuda.current_device()]
        return Then(self._torch, self._all if self._moving is None else self._moving, devices)

    def learn(self, then: Then) -> None:
        """After the first call, which began at `then`."""
        if self._moving is None:
            self._moving = then.moved()


class Then:
    """How random numbers and places were at some time."""

    def __init__(self, torch: Torch, places: list[_Buffer | _Attribute], devices: list[int]) -> None:
        self._torch, self._places, self._devices = torch, places, devices
        self._host = HostRandom()
        self._cpu = torch.get_rng_state()
        self._cuda = [torch.cuda.get_rng_state(it) for it in devices]
        clones = _clones(torch, [it for it in (place.to_clone() for place in places) if it is not None])
        self._values = [place.get(clones) for place in places]

    def moved(self) -> list[_Buffer | _Attribute]:
        """The places that are otherwise now."""
        return [place for place, value in zip(self._places, self._values) if place.has_moved(value)]

    def drew(self) -> bool:
        """Whether PyTorch's random numbers were used since."""
        torch = self._torch
        if not torch.equal(self._cpu, torch.get_rng_state()):
            return True
        return any(not torch.equal(then, torch.cuda.get_rng_state(it)) for it, then in zip(self._devices, self._cuda))

    def put_random(self) -> None:
        """Random numbers as they were then."""
        torch = self._torch
        self._host.again()
        torch.set_rng_state(self._cpu)
        for it, state in zip(self._devices, self._cuda):
            torch.cuda.set_rng_state(state, it)

    def put(self) -> None:
        """Everything as it was then."""
        self.put_random()
        with self._torch.no_grad():
            for place, value in zip(self._places, self._values):
                if place.has_moved(value):
                    place.put(value)

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Everything as it was then, and afterwards as it is now."""
        now = Then(self._torch, self._places, self._devices)
        self.put()
        try:
            yield
        finally:
            now.put()


class _Buffer:
    """A module's buffer."""

    def __init__(self, owner: Module, name: str, shown: str) -> None:
        self._owner, self._name, self._shown = owner, name, shown

    def to_clone(self) -> Tensor | None:
        tensor = self._owner._buffers.get(self._name)
        is_kept = tensor is not None and not tensor.is_inference() and tensor.numel() * tensor.element_size() <= _SMALL
        return tensor if is_kept else None

    def get(self, clones: dict[int, Tensor]) -> tuple[Any, Any, Any]:
        tensor = self._owner._buffers.get(self._name)
        if tensor is None or tensor.is_inference():
            return tensor, 0, None
        return tensor, tensor._version, clones.get(id(tensor))

    def has_moved(self, value: tuple[Any, Any, Any]) -> bool:
        tensor, _, _ = value
        return self._owner._buffers.get(self._name) is not tensor or self._was_written(value)

    def _was_written(self, value: tuple[Any, Any, Any]) -> bool:
        tensor, version, clone = value
        if tensor is None or tensor.is_inference():
            return False
        # Batch-norm writes its statistics without a new version.
        return tensor._version != version or (clone is not None and not tensor.equal(clone))

    def put(self, value: tuple[Any, Any, Any]) -> None:
        tensor, _, clone = value
        if self._was_written(value):
            if clone is None:
                raise CannotRedo("its buffer `%s` was written into, and is too large to store for each call" % self._shown)
            tensor.copy_(clone)
        self._owner._buffers[self._name] = tensor


class _Attribute:
    """What a module keeps in an attribute: a number, a text, a tensor, a generator, a list of anything."""

    def __init__(self, owner: Module, name: str, shown: str) -> None:
        self._owner, self._name, self._shown = owner, name, shown

    def to_clone(self) -> None:
        return None

    def get(self, clones: dict[int, Tensor]) -> tuple[Any, Any, Any]:
        value = vars(self._owner).get(self._name, _MISSING)
        if isinstance(value, _CONTAINERS):
            return value, len(value), value.copy() if len(value) <= _SHORT else None
        if hasattr(value, "get_state") and hasattr(value, "set_state"):
            return value, 0, value.get_state()
        return value, getattr(value, "_version", 0), None

    def has_moved(self, value: tuple[Any, Any, Any]) -> bool:
        then, mark, kept = value
        now = vars(self._owner).get(self._name, _MISSING)
        if isinstance(then, _PLAIN):
            return type(now) is not type(then) or now != then
        if now is not then:
            return True
        if isinstance(then, _CONTAINERS):
            return len(now) != mark or (kept is not None and not _same_entries(now, kept))
        if hasattr(then, "get_state"):
            return bool((then.get_state() != kept).any())
        return getattr(now, "_version", 0) != mark

    def put(self, value: tuple[Any, Any, Any]) -> None:
        then, mark, kept = value
        if isinstance(then, _CONTAINERS):
            if kept is None:
                raise CannotRedo("its `%s` was changed, and is too long to store for each call" % self._shown)
            then.clear()
            then.extend(kept) if isinstance(then, (list, collections.deque)) else then.update(kept)
        elif hasattr(then, "set_state"):
            then.set_state(kept)
        elif getattr(then, "_version", 0) != mark:
            raise CannotRedo("its tensor `%s` was written into" % self._shown)
        if then is _MISSING:
            self._owner.__dict__.pop(self._name, None)
        else:
            self._owner.__dict__[self._name] = then


def _same_entries(now: Any, kept: Any) -> bool:
    if isinstance(now, dict):
        return all(a is b and now[a] is kept[b] for a, b in zip(now, kept))
    if isinstance(now, set):
        return now == kept
    return all(a is b for a, b in zip(now, kept))


def _clones(torch: Torch, tensors: list[Tensor]) -> dict[int, Tensor]:
    """Copies by the identity of what was copied; a few kernels for all of them."""
    found: dict[int, Tensor]
    groups, found = collections.defaultdict(list), {}
    for it in tensors:
        groups[it.dtype, it.device, type(it) is torch.Tensor and it.layout is torch.strided].append(it)
    with torch.no_grad():
        for (dtype, _, is_plain), group in groups.items():
            can_add = is_plain and dtype is not torch.bool and (dtype.is_floating_point or dtype in (torch.int32, torch.int64))
            copies = torch._foreach_add(group, 0) if can_add and dtype.itemsize > 1 else [it.detach().clone() for it in group]
            found.update((id(it), copy) for it, copy in zip(group, copies))
    return found
