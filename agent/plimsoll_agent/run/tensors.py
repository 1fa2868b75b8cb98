"""Which address is which parameter, gradient, buffer, optimizer state or input.

Addresses are read, tensors are not: nothing here touches values, waits for the device or keeps
anything alive. A name holds from the place in the trace where the line was written until the block
there is freed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from plimsoll_agent.run import nested
from plimsoll_agent.run.batch_sizes import BatchSizes
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from plimsoll_agent.kinds import Arguments, Module, Named, Nested, Optimizer, Tensor, Torch
    from plimsoll_agent.run.memory import Memory
    from plimsoll_agent.run.owners import Model, Owners
    from plimsoll_agent.run.recording import Recording

MOST_INPUT_LINES = 200
MOST_INPUTS = 1000
MOST_FIRST_INPUTS = 16
MOST_PARTS = 16
_DEEPEST = 4


class Tensors:
    """Writes down what lives where."""

    def __init__(
        self, torch: Torch, memory: Memory, recording: Recording, owners: Owners, optimizers: Callable[[], list[Optimizer]]
    ) -> None:
        self._torch = torch
        self._is_copy_on_write = getattr(torch._C, "_is_cow_tensor", lambda tensor: False)
        self._memory = memory
        self._recording = recording
        self._owners = owners
        self._optimizers = optimizers
        self._input_lines = 0
        self._models_seen = 0
        self._batches = BatchSizes(recording)
        self.appeared: Callable[[], object] | None = None
        """Called when new models are called for the first time."""
        self.given: Callable[[bool, list[Tensor]], object] = lambda is_training, tensors: None
        """Called with the tensors that a top-level forward is given, and whether it is in training."""
        self._models_written: Named = {}
        self._in_pieces: set[str] = set()
        self.first_inputs: list[str] = []
        """What the first forward pass was given, as in `input_ids 8x512 int64`."""
        self.input_wants_gradient = False
        """Whether the last top-level forward pass was given a leaf that wants a gradient: an attribution, an attack."""

    @guarded
    def all(self) -> None:
        """Everything that has a name, as of now."""
        if not self._memory.started:
            return
        entries = _Entries()
        names: dict[int, str] = {}
        held: dict[str, list[int]] = {}
        for root, model in self._owners.models():
            storages: dict[tuple[int, int], int] = {}
            for name, parameter in root.named_parameters():
                name = self._owners.name_in(model, root, name)
                if id(parameter) not in names:
                    names[id(parameter)] = name
                    storages.update(self._add(entries, parameter, name, "parameter", model.name))
                    self._add(entries, parameter.grad, name, "gradient", model.name)
            self._write_in_pieces(root, model)
            for name, buffer in root.named_buffers():
                self._add(entries, buffer, self._owners.name_in(model, root, name), "buffer", model.name)
            if storages:
                counts = held.setdefault(model.name, [0, 0])
                counts[0] += 1
                counts[1] += sum(storages.values())
        self._write_models(held)
        for optimizer in self._optimizers():
            self._optimizer(entries, optimizer, names)
        self._write(entries)

    def _write_models(self, held: dict[str, list[int]]) -> None:
        """Of which class several outermost modules have weights on a device."""
        made = _being_made(self._torch)
        for name, (count, size) in held.items():
            # While a model is made, its layers are of no model yet.
            if made is not None and made != name:
                continue
            if 1 < count and self._models_written.get(name) != (count, size):
                self._models_written[name] = (count, size)
                self._recording.write("models", model=name, count=count, bytes=size)

    def _write_in_pieces(self, root: Module, model: Model) -> None:
        """The recurrent layers whose weights are no single piece, so that each call on cuDNN joins them."""
        for name, module in root.named_modules():
            weights = getattr(module, "_flat_weights", None)
            if isinstance(module, self._torch.nn.RNNBase) and isinstance(weights, list) and name not in self._in_pieces:
                storages = [self.storage_of(it) for it in weights if isinstance(it, self._torch.Tensor)]
                if None in storages or len({it[1] for it in storages if it is not None}) < 2:
                    continue
                self._in_pieces.add(name)
                path = self._owners.name_in(model, root, name) or model.name
                self._recording.write("in_pieces", module=path, bytes=sum(it.numel() * it.element_size() for it in weights))

    def _optimizer(self, entries: _Entries, optimizer: Optimizer, names: dict[int, str]) -> None:
        for g, group in enumerate(optimizer.param_groups):
            for p, parameter in enumerate(group["params"]):
                if id(parameter) not in names:
                    name = names[id(parameter)] = "param_groups[%d].params[%d]" % (g, p)
                    self._add(entries, parameter, name, "parameter", None)
                    self._add(entries, parameter.grad, name, "gradient", None)
        for parameter, state in optimizer.state.items():
            owner = names.get(id(parameter), "?")
            if isinstance(state, dict):
                for key, value in state.items():
                    for where, tensor in self._inside(value, str(key), 2):
                        self._add(entries, tensor, "%s.%s" % (owner, where), "optimizer_state", None)

    def models_appeared(self) -> None:
        """Names the models when the first ones are called: a run may not survive its first step."""
        models = len(self._owners.models())
        if models > self._models_seen:
            self._models_seen = models
            self.all()
            if self.appeared is not None:
                self.appeared()

    @guarded
    def inputs(self, model: Module, is_training: bool, args: Arguments, kwargs: Named) -> None:
        """The tensors given to a top-level forward."""
        tensors = nested.tensors_in(self._torch, (args, kwargs))
        self._batches.given(model, is_training, tensors)
        self.given(is_training, tensors)
        self.input_wants_gradient = any(it.requires_grad and it.is_leaf for it in tensors)
        if not self._memory.started or self._input_lines >= MOST_INPUT_LINES:
            return
        if self._in_mode_of_others():
            return  # Fake tensors and the like have no addresses.
        if self._input_lines < 8:
            self.models_appeared()
        entries = _Entries()
        given = [("args[%d]" % i, value) for i, value in enumerate(args)]
        given += list(kwargs.items())
        is_first = not self._input_lines
        for name, value in given:
            for where, tensor in self._inside(value, name, _DEEPEST):
                if is_first and len(self.first_inputs) < MOST_FIRST_INPUTS:
                    self.first_inputs.append(_shown(where, tensor))
                # What came out of another module is an activation, not an input.
                if tensor.grad_fn is None:
                    self._add(entries, tensor, where, "input", None)
        if entries.by_device:
            self._input_lines += 1
            self._write(entries)

    def _in_mode_of_others(self) -> bool:
        c = self._torch._C
        stack = [c._get_dispatch_stack_at(i) for i in range(c._len_torch_dispatch_stack())]
        return any(not getattr(mode, "is_plimsolls", False) for mode in stack)

    def _inside(self, value: Nested, name: str, depth: int) -> list[tuple[str, Tensor]]:
        """(name, tensor) for the tensors in nested containers."""
        found: list[tuple[str, Tensor]]
        found, todo = [], [(name, value, depth)]
        while todo and len(found) < MOST_INPUTS:
            name, value, depth = todo.pop()
            if isinstance(value, self._torch.Tensor):
                found.append((name, value))
            elif depth and isinstance(value, (list, tuple)):
                todo += [("%s[%d]" % (name, i), v, depth - 1) for i, v in enumerate(value[:MOST_INPUTS])]
            elif depth and (isinstance(value, dict) or hasattr(value, "data") and hasattr(value, "items")):
                todo += [("%s.%s" % (name, k), v, depth - 1) for k, v in list(value.items())[:MOST_INPUTS]]
        return found

    def _add(self, entries: _Entries, tensor: Any, name: str, role: str, model: str | None) -> dict[tuple[int, int], int]:
        """The bytes of its storages, by device and address."""
        storages = {}
        for part in self._stored(tensor) if isinstance(tensor, self._torch.Tensor) else ():
            where = self.storage_of(part)
            if where is not None:
                device, address, size = where
                entries.add(device, name, role, address, size, model)
                storages[device, address] = size
        return storages

    def _stored(self, tensor: Tensor) -> list[Tensor]:
        """The tensors whose storage it has: itself, or those that a quantized weight is made of."""
        found: list[Tensor] = []
        todo: list[Any] = [tensor]
        while todo and len(found) < MOST_PARTS:
            it = todo.pop()
            flatten = None if hasattr(it, "_local_tensor") else getattr(it, "__tensor_flatten__", None)
            if flatten is not None:
                todo += [getattr(it, name) for name in flatten()[0]]
                continue
            found.append(it)
            if not it.is_floating_point():  # The scales of a packed weight are attributes of it.
                todo += [part for part in self._attributes(it, 2) if part is not it]
        return found

    def _attributes(self, value: Any, depth: int) -> list[Tensor]:
        """The tensors among what an object has as attributes, and among theirs."""
        found: list[Tensor] = []
        for it in getattr(value, "__dict__", {}).values():
            if isinstance(it, self._torch.Tensor):
                found.append(it)
            elif depth and not isinstance(it, (type, self._torch.nn.Module)):
                found += self._attributes(it, depth - 1)
        return found[:MOST_PARTS]

    def storage_of(self, tensor: Any) -> tuple[int, int, int] | None:
        """The device, the address and the bytes of a tensor's storage; None if that is on no device."""
        tensor = getattr(tensor, "_local_tensor", tensor)  # A DTensor's part on this device.
        try:
            # `data_ptr` of a copy-on-write storage would copy it.
            if not tensor.is_cuda or self._is_copy_on_write(tensor):
                return None
            storage = tensor.untyped_storage()
            return tensor.device.index or 0, storage.data_ptr(), storage.nbytes()
        except (RuntimeError, NotImplementedError, ValueError):
            return None  # No storage of its own: sparse, functorch, a subclass; or none yet: a parameter of a lazy module.

    def _write(self, entries: _Entries) -> None:
        where = self._memory.place().where()
        for device, found in sorted(entries.by_device.items()):
            self._recording.write("tensors", device=device, entries=found, **where)


def _being_made(torch: Torch) -> str | None:
    """The class of the outermost module whose `__init__` runs."""
    frame, found = sys._getframe(1), None
    while frame is not None:
        made = frame.f_locals.get("self") if frame.f_code.co_name == "__init__" else None
        found = type(made).__name__ if isinstance(made, torch.nn.Module) else found
        frame = frame.f_back  # type: ignore[assignment]
    return found


def _shown(name: str, tensor: Tensor) -> str:
    try:
        shape = "x".join(map(str, tensor.shape)) or "scalar"
    except RuntimeError:
        shape = "nested"  # Of tensors that differ in size.
    return "%s %s %s" % (name, shape, str(tensor.dtype).rpartition(".")[2])


class _Entries:
    """Named storages by device, each once in each role."""

    def __init__(self) -> None:
        self.by_device: dict[int, list[Named]] = {}
        self._seen: set[tuple[int, str]] = set()

    def add(self, device: int, name: str, role: str, address: int, size: int, model: str | None) -> None:
        if address == 0 or (address, role) in self._seen:
            return
        self._seen.add((address, role))
        entry = {"name": name, "role": role, "address": address, "bytes": size}
        if model is not None:
            entry["model"] = model
        self.by_device.setdefault(device, []).append(entry)
