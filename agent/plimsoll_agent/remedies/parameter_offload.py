"""The weights of blocks wait in pinned memory of the host and come to the device for one block at a time.

Saves the weights of all blocks but one or two; costs two copies of them to the device in each step, forward and backward,
and one each way when they are updated. The numbers are the same. While they are on the host, weights are NaN on the device,
so that a wrong use shows; a script saves and loads the real ones.

Parameters: `chunk`, in bytes of weights that are updated together (64 MiB unless given).
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.remedies.support import again
from plimsoll_agent.remedies.support.blocks import blocks_of, own_parameters
from plimsoll_agent.remedies.support.host import Host, to_keep
from plimsoll_agent.remedies.support.optimizers import update_in_chunks
from plimsoll_agent.run import nested
from plimsoll_agent.run.refusal import unsuited

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from plimsoll_agent.kinds import Module, Named, Note, Optimizer, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    away = Away(torch)

    def prepare(module: Module) -> None:
        if any(again.is_compiled_itself(it) and blocks_of(torch, it) for it in module.modules()):
            raise unsuited("parameter-offload", "%s: torch.compile compiles its blocks into one program" % type(module).__name__)
        blocks = blocks_of(torch, module)
        hooks.recording.write("blocks", names=[name for name, _ in blocks])
        if not blocks and hooks.is_training(module):
            raise unsuited("parameter-offload", "%s: plimsoll found no repeated blocks in it" % type(module).__name__)
        for block, its_own in own_parameters(module, [block for _, block in blocks]):
            away.add(block, its_own)

    hooks.before_call(prepare)

    @contextlib.contextmanager
    def here(optimizer: Optimizer, chunk: list[Tensor]) -> Iterator[None]:
        came = away.fetch(chunk)
        yield
        away.send(came)

    update_in_chunks(torch, "parameter-offload", parameters, here)
    _save_and_load(torch, away)


class Weights:
    """The weights of one block."""

    def __init__(self, parameters: list[Tensor]) -> None:
        self.parameters = parameters
        self.waits_for: set[int] = set()
        # A weight without gradient may be needed after the last gradient of its block is there.
        self.all_train = all(it.requires_grad for it in parameters)


class Away:
    """The weights of blocks, here and away."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._host = Host(torch)
        self._blocks: weakref.WeakKeyDictionary[Module, Weights] = weakref.WeakKeyDictionary()
        self._classes: set[type[Any]] = set()
        self._block_of: dict[int, weakref.ref[Weights]] = {}
        self._on_host: dict[int, Tensor] = {}
        # Those that are here, with the version that is on the host; none if nothing is.
        self._here: dict[int, Any] = {}
        self._in_backward: list[Weights] = []

    def add(self, block: Module, parameters: list[Tensor]) -> None:
        """From now on these are here only when they are needed. Those that are known already stay their block's: a part of a model may be
        called by itself before the whole of it, and be away by then."""
        parameters = [it for it in parameters if id(it) not in self._block_of]
        if block in self._blocks or not parameters:
            return
        kept = self._blocks[block] = Weights(parameters)
        for it in parameters:
            weakref.finalize(it, self._forget, id(it))
            self._block_of[id(it)] = weakref.ref(kept)  # Which has them, and goes with its block.
            self._here[id(it)] = None
            if kept.all_train:
                it.register_post_accumulate_grad_hook(self._has_gradient)
        self.send(parameters)
        self._wrap(type(block))

    def _forget(self, key: int) -> None:
        """It is no more, and another one may come to lie where it was."""
        for known in (self._block_of, self._here, self._on_host):
            known.pop(key, None)

    def on_host(self, parameter: Tensor) -> Tensor | None:
        """Its saved form; None if it is not one of these."""
        self.send([parameter])
        return self._on_host.get(id(parameter))

    def fetch(self, parameters: Iterable[Tensor]) -> list[Tensor]:
        """Those of these that are away come; answers which."""
        came = [it for it in parameters if id(it) in self._block_of and id(it) not in self._here]
        for it in came:
            host = self._on_host[id(it)]
            it.data = self._host.fetch(host, it.device) if host.device != it.device else host.clone()
            self._here[id(it)] = it._version
        return came

    def send(self, parameters: Iterable[Tensor]) -> None:
        """And go again."""
        torch = self._torch
        with torch.no_grad():
            for it in parameters:
                if id(it) not in self._here:
                    continue
                if self._here.pop(id(it)) != it._version:
                    before = self._on_host.get(id(it))
                    self._on_host[id(it)] = self._host.send(it.detach(), before)
                it.data = torch.full((), float("nan"), dtype=it.dtype, device=it.device).expand(it.shape)

    def _wrap(self, kind: type[Any]) -> None:
        if kind in self._classes:
            return
        self._classes.add(kind)
        torch, original, blocks = self._torch, kind.forward, self._blocks

        def forward(block: Module, *args: Any, **kwargs: Any) -> Any:
            kept = blocks.get(block)
            if kept is None:
                return original(block, *args, **kwargs)
            came = self.fetch(kept.parameters)
            try:
                with self._views_kept_as_places(kept):
                    output = original(block, *args, **kwargs)
            finally:
                self.send(came)  # Not what a call around this one needs.
            if torch._C._current_graph_task_id() == -1:
                self._expect_backward(kept, output)
            return output

        patch.put(kind, "forward", forward)

    def _views_kept_as_places(self, kept: Weights) -> Any:
        """Unless a checkpoint around this block, which saves nothing of it, decides what is saved."""
        torch = self._torch
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            return contextlib.nullcontext()
        return torch.autograd.graph.saved_tensors_hooks(functools.partial(self._pack, kept), self._unpack)

    def _pack(self, kept: Weights, tensor: Tensor) -> Any:
        """A view of a weight is saved as its place in the weight, whose address will change."""
        if type(tensor) is not self._torch.Tensor and not isinstance(tensor, self._torch.nn.Parameter):
            return to_keep(tensor)
        if tensor.layout is self._torch.strided:
            start = tensor.untyped_storage().data_ptr()
            for it in kept.parameters:
                if it.dtype == tensor.dtype and start and it.untyped_storage().data_ptr() == start:
                    return it, tensor.size(), tensor.stride(), tensor.storage_offset()
        return to_keep(tensor)

    def _unpack(self, packed: Any) -> Any:
        if isinstance(packed, self._torch.Tensor):
            return packed
        it, size, stride, offset = packed
        self.fetch([it])  # It is here already, unless the graph is walked in an order of its own.
        return it.detach().as_strided(size, stride, offset)

    def _expect_backward(self, kept: Weights, output: Any) -> None:
        torch = self._torch
        outputs = [it for it in nested.tensors_in(torch, output) if it.requires_grad]
        if torch.is_grad_enabled() and outputs:
            for it in outputs:
                it.register_hook(functools.partial(self._backward_begins, kept))

    def _backward_begins(self, kept: Weights, gradient: Tensor) -> None:
        if kept in self._in_backward:
            return
        if not self._in_backward:
            self._torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)
        self.fetch(kept.parameters)
        self._in_backward.append(kept)
        kept.waits_for = {id(it) for it in kept.parameters} if kept.all_train else set()
        # Blocks whose end is not seen: two later they are over.
        for earlier in self._in_backward[:-2]:
            if not earlier.all_train:
                self.send(earlier.parameters)

    def _has_gradient(self, parameter: Tensor) -> None:
        kept = self._block_of[id(parameter)]()
        if kept is None:
            return
        kept.waits_for.discard(id(parameter))
        if kept in self._in_backward and not kept.waits_for:
            self.send(kept.parameters)

    def _backward_ends(self) -> None:
        for kept in self._in_backward:
            self.send(kept.parameters)
        self._in_backward.clear()


def _save_and_load(torch: Torch, away: Away) -> None:
    module_class = torch.nn.Module
    state_dict, load = module_class.state_dict, module_class.load_state_dict

    def whole(self: Any, *args: Any, **kwargs: Any) -> Any:
        res = state_dict(self, *args, **kwargs)
        if args or kwargs.get("destination") is not None:  # A part, called for the whole.
            return res
        prefix = kwargs.get("prefix", "")
        for name, it in self.named_parameters(remove_duplicate=False):
            kept = away.on_host(it) if prefix + name in res else None
            if kept is not None:
                res[prefix + name] = torch.empty_like(kept, device="cpu") if kept.is_meta else kept.clone()
        return res

    def load_state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        here = away.fetch(list(self.parameters()))
        try:
            return load(self, *args, **kwargs)
        finally:
            away.send(here)

    patch.put(module_class, "state_dict", whole)
    patch.put(module_class, "load_state_dict", load_state_dict)
