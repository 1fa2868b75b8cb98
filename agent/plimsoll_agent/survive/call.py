"""One call of a model in training, which can be repeated.

The tensors that autograd saves for backward go through cells, so that a call can free them. The call is then repeated when
backward asks for them, as PyTorch's checkpoints do, and the saved tensors wait in host memory. Nothing of a call outlives autograd's graph of it: the
graph holds the cells, the cells hold the call.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import TYPE_CHECKING, Any, NoReturn

from plimsoll_agent.remedies.support import split
from plimsoll_agent.remedies.support.host import before_expansion, is_parameter
from plimsoll_agent.remedies.support.rerun import autocast_of
from plimsoll_agent.remedies.support.ways import with_one_label
from plimsoll_agent.run import frames
from plimsoll_agent.run.nested import rebuilt, tensors_in
from plimsoll_agent.survive import CannotRedo, graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from plimsoll_agent.kinds import Arguments, Function, Module, Named, Nested, Packed, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks
    from plimsoll_agent.remedies.support.host import Host
    from plimsoll_agent.survive.state import Then


class Call:
    """A call of a model, or of a loss that has none. `call` makes it; `then` is how everything was before."""

    def __init__(
        self, torch: Torch, hooks: Hooks, host: Host, in_pass: Pass, module: Module | None, call: Function, args: Arguments, kwargs: Named, then: Then
    ) -> None:
        self._torch, self._hooks, self._host, self._pass = torch, hooks, host, in_pass
        self._then: Any
        self._call: Any
        self._call, self._args, self._kwargs, self._then = call, args, kwargs, then
        self.module = weakref.ref(module) if module is not None else _nothing
        self._versions = [_version(it) for it in self._inputs()]
        self._weights: list[tuple[Tensor, int]] = [(it, it._version) for it in module.parameters()] if module is not None else []
        self._autocast = autocast_of(torch)
        self._cells: list[weakref.ref[_Cell]] = []
        self._shapes: list[tuple[int, ...]] = []
        self.drew = False
        self.around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext  # What the call is made inside of, each time.

    def _inputs(self) -> list[Tensor]:
        return tensors_in(self._torch, (self._args, self._kwargs))

    def run(self, on_host: bool = False) -> Nested:
        """Makes it. What is saved for backward stays on the device, or waits on the host."""

        def pack(tensor: Tensor) -> _Cell:
            cell = _Cell(self, tensor)
            if on_host:
                cell.send()
            self._cells.append(weakref.ref(cell))
            return cell

        with self.around(), self._torch.autograd.graph.saved_tensors_hooks(pack, _Cell.fetch):
            return self._call(*self._args, **self._kwargs)

    def run_as(self, run: Callable[[Function, Arguments, Named], Any]) -> Any:
        """Makes it as `run(call, args, kwargs)` does."""
        return run(self._call, self._args, self._kwargs)

    def watch(self, output: Nested) -> bool:
        """Writes into autograd's graph what it returned. True if any of that has a gradient."""
        tensors = tensors_in(self._torch, output)
        self._shapes = [it.shape for it in tensors]
        made = [(number, it) for number, it in enumerate(tensors) if self._is_made_here(it)]
        for number, tensor in made:
            tensor.grad_fn.metadata.setdefault(graph.KEY, (self, {}))[1].setdefault(tensor.output_nr, number)
        return bool(made)

    def _is_made_here(self, tensor: Tensor) -> bool:
        # One that another call made, and that this one only hands on, is the other's.
        is_others = tensor.grad_fn is None or any(it is tensor for it in self._inputs())
        return tensor.requires_grad and not is_others and tensor.grad_fn.metadata.get(graph.KEY, (self,))[0] is self

    def is_done_with(self) -> None:
        """The graph was used up: the call is no longer needed, and a loss that the script stores must not hold it."""
        self._args, self._kwargs, self._call, self._then, self._weights = (), {}, None, None, []

    def let_go(self) -> None:
        """Lets go of what is saved for backward."""
        for it in self._cells:
            cell = it()
            if cell is not None:
                cell.let_go()

    def inputs_with_gradients(self) -> dict[int, Any]:
        """The edges of autograd's graph that its inputs are, by their number."""
        edge_of = self._torch.autograd.graph.get_gradient_edge
        return {i: edge_of(it) for i, it in enumerate(self._inputs()) if it.requires_grad}

    def leaves(self) -> list[Tensor]:
        """Every parameter of its model, and what else it was given, that gets a gradient."""
        module = self.module()
        given = (it for it in self._inputs() if it.is_leaf)
        return [it for it in (*(module.parameters() if module is not None else ()), *given) if it.requires_grad]

    def can_be_made_again(self) -> bool:
        """Whether backward could ask for it."""
        try:
            self.check(for_backward=True)
        except CannotRedo:
            return False
        return True

    def check(self, for_backward: bool) -> None:
        """Raises CannotRedo if the call would not be the same any more."""
        if self._call is None:
            raise CannotRedo("its graph was used before")
        if [_version(it) for it in self._inputs()] != self._versions:
            raise CannotRedo("the inputs of the model were changed in place")
        if for_backward and any(it._version != version for it, version in self._weights):
            raise CannotRedo("its weights have changed since, as with an optimizer that steps inside backward")
        module = self.module()
        if module is not None and any(_has_hooks(it) for it in module.modules()):
            raise CannotRedo("its model has hooks of the script's own, which would run once more")

    @contextlib.contextmanager
    def as_it_was(self) -> Iterator[None]:
        """The same precision, and nothing that is called is a call of its own."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._hooks.as_one_call())
            stack.enter_context(self.around())
            for it in self._autocast:
                stack.enter_context(self._torch.autocast(**it))
            yield

    @contextlib.contextmanager
    def _as_then(self) -> Iterator[None]:
        with self.as_it_was(), self._then.again(), self._torch.enable_grad():
            yield

    def fill_again(self) -> None:
        """Makes the call again for what it let go of, which then waits on the host."""
        if self._call is None:
            # PyTorch would have raised this, if the graph had not been retained.
            raise RuntimeError("Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed).")
        try:
            self.check(for_backward=True)
        except CannotRedo as refused:
            raise RuntimeError("plimsoll run --survive: backward asks for tensors that plimsoll has freed, and plimsoll cannot call the model again: %s" % refused) from refused
        count = 0

        def pack(tensor: Tensor) -> None:
            nonlocal count
            cell = self._cells[count]() if count < len(self._cells) else None
            count += 1
            if cell is not None:
                cell.fill(tensor)

        with self._as_then(), self._torch.autograd.graph.saved_tensors_hooks(pack, _nobody_asks):
            output = self._call(*self._args, **self._kwargs)
        self._compare(output)
        if count != len(self._cells):
            raise RuntimeError(
                "plimsoll run --survive: called again, the model saved %d tensors for backward instead of %d; "
                "it decides by something that plimsoll does not see" % (count, len(self._cells))
            )

    def _compare(self, output: Nested) -> None:
        if [it.shape for it in tensors_in(self._torch, output)] != self._shapes:
            raise RuntimeError("plimsoll run --survive: called again, the model returned tensors of other shapes")

    def backward_again(
        self, gradients: dict[int, Waiting], is_left: Callable[[Tensor], bool], part: tuple[Any, ...] | None = None
    ) -> dict[int, Tensor]:
        """Makes the call again, and runs backward from the gradients of its outputs, by number.

        Only parameters for which `is_left` get a gradient. What is saved waits on the host. `part`: of the batch, as
        `(whole, along, start, end, way, draws)`. Returns the gradients of its inputs, or of the samples of them, by number.
        """
        torch = self._torch
        wants = [it.requires_grad and (not it.is_leaf or is_left(it)) for it in self._inputs()]
        twins: dict[int, Tensor] = {}

        def twin(tensor: Tensor) -> Tensor:
            number = len(twins)
            # Also of what wants none: numbers are those of the inputs.
            twins[number] = tensor.detach().requires_grad_(wants[number])
            return twins[number]

        args, kwargs = self._args, dict(self._kwargs)
        weight, around = None, contextlib.nullcontext()
        if part is not None:
            whole, along, start, end, way, draws = part
            if draws is not None:
                around = draws.of_part(whole, start, end)
            weight = functools.partial(way.weights, kwargs, whole, start, end) if way.has_loss else None
            args, kwargs = split.part_of(torch, args, kwargs, whole, start, end, along)
        args, kwargs = rebuilt(torch, args, twin), rebuilt(torch, kwargs, twin)
        done = [it for it in self.leaves() if not is_left(it)]
        # Those that have theirs take no part; `backward(inputs=...)` would not do where a model checkpoints itself in the older way.
        with self._as_then(), _frozen(done), around:
            if part is not None:
                kwargs = with_one_label(torch, way, kwargs)
            with torch.autograd.graph.saved_tensors_hooks(self._send, self._fetch):
                output = self._call(*args, **kwargs)
            tensors = tensors_in(torch, output)
            if len(tensors) != len(self._shapes):
                raise CannotRedo("called again, its model returns %d tensors instead of %d" % (len(tensors), len(self._shapes)))
            roots, from_roots = [], []
            for number, gradient in sorted(gradients.items()):
                tensor = tensors[number]
                if tensor.grad_fn is None:
                    continue
                if part is not None and gradient.shape:
                    gradient = gradient.in_part(way.axis, whole, start, end)
                elif part is not None:
                    if weight is None:
                        raise CannotRedo("its model returns a number for the whole batch")
                    tensor = tensor * weight()
                if gradient.shape != tensor.shape:
                    raise CannotRedo("called again, its model returns tensors of other shapes")
                roots.append(torch.autograd.graph.get_gradient_edge(tensor))
                from_roots.append(gradient)
            # What it returned is not needed any more, and may be the largest of all.
            del output, tensors, tensor
            own, leaves = {id(it) for it in twins.values()}, graph.below(it.node for it in roots)
            if not all(id(it.variable) in own or is_left(it.variable) for it in leaves if hasattr(it, "variable")):
                raise CannotRedo("its model reaches parameters in other ways than through its own modules")
            if roots:
                torch.autograd.backward(roots, [it.on_device() for it in from_roots])
        return {number: it.grad for number, it in twins.items() if it.grad is not None}

    def _send(self, tensor: Tensor) -> Packed:
        torch = self._torch
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or is_parameter(torch, tensor):
            return None, tensor, None
        return tensor.device, self._host.send(before_expansion(tensor)), tensor.size()

    def _fetch(self, packed: Packed) -> Tensor:
        device, kept, size = packed
        return kept if device is None else self._host.fetch(kept, device).expand(size)


class Waiting:
    """A gradient that waits on the host until its call has been made again."""

    def __init__(self, host: Host, device: Any, kept: Tensor) -> None:
        self._host, self._device, self._kept = host, device, kept
        self.shape = kept.shape

    @classmethod
    def sent(cls, host: Host, gradient: Tensor) -> Waiting:
        """Of a gradient on a device."""
        return cls(host, gradient.device, host.send(gradient) if gradient.dim() else gradient)

    def in_part(self, axis: int, whole: int, start: int, end: int) -> Waiting:
        """That of samples `start..end`."""
        dimension = next((it for it in (axis, 0) if len(self.shape) > it and self.shape[it] == whole), None)
        if dimension is None:
            raise CannotRedo("its model does not return one entry for each sample")
        return Waiting(self._host, self._device, self._kept.narrow(dimension, start, end - start))

    def on_device(self) -> Tensor:
        """The gradient itself."""
        return self._host.fetch(self._kept, self._device) if self.shape else self._kept


class Pass:
    """The backward pass that is under way, whose graph PyTorch keeps so that the pass can be made again.

    The cells that it has come to let go of what they hold, as PyTorch would have done.
    """

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self.is_kept_by_us = False
        self.calls: dict[Call, None] = {}  # Those that it has come to, in their order.
        self._asked: list[_Cell]
        self._node: Any
        self._node, self._asked = None, []

    def begin(self, is_kept_by_us: bool) -> None:
        """Before PyTorch's own."""
        self.is_kept_by_us = is_kept_by_us
        self.calls.clear()

    def end(self) -> None:
        """After it."""
        self.is_kept_by_us = False
        self._others_have_asked(None)

    def came_to(self, call: Call, cell: _Cell) -> None:
        """A node has asked for what a cell holds."""
        self.calls[call] = None
        if not self.is_kept_by_us:
            return
        node = self._torch._C._current_autograd_node()
        if node is not self._node:
            self._others_have_asked(node)
        if graph.is_of_the_script(self._torch, node):
            # It may ask for the same several times, as PyTorch's own nodes never do.
            self._asked.append(cell)
        else:
            cell.let_go()

    def _others_have_asked(self, node: Any) -> None:
        for it in self._asked:
            it.let_go()
        self._node, self._asked = node, []


class _Cell:
    """A tensor that is saved for backward: on the device, on the host, or let go of."""

    __slots__ = ("_call", "_tensor", "_version", "_packed", "_stays", "__weakref__")

    def __init__(self, call: Call, tensor: Tensor) -> None:
        # The very tensor would hold the graph that holds it.
        self._packed: Packed | None
        self._tensor: Tensor | None
        self._call, self._tensor, self._version, self._packed = call, tensor.detach(), _version(tensor), None
        self._stays = is_parameter(call._torch, tensor)

    def send(self) -> None:
        if not self._stays:
            self._packed, self._tensor = self._call._send(self._tensor), None

    def fill(self, tensor: Tensor) -> None:
        if self._tensor is None and self._packed is None:
            self._packed = self._call._send(tensor)

    def let_go(self) -> None:
        if not self._stays and self._packed is None:
            self._tensor = None

    def fetch(self) -> Tensor:
        tensor = self._tensor
        if tensor is None:
            if self._packed is None:
                self._call.fill_again()
            tensor = self._call._fetch(self._packed)  # type: ignore[arg-type]  # It is filled by now.
        elif _version(tensor) != self._version:
            # PyTorch's own check, which it leaves out where hooks store what is saved.
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor of "
                "shape %s" % (list(tensor.shape),)
            )
        self._call._pass.came_to(self._call, self)
        return tensor


def _nothing() -> None:
    return None


def _nobody_asks(packed: Any) -> NoReturn:
    raise RuntimeError("plimsoll run --survive: the graph of a call that plimsoll repeats was used")


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _has_hooks(module: Module) -> bool:
    """Hooks of the script's own. Those of libraries, for weight norms and the like, do the same at each call."""
    kinds = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(_is_the_scripts(it) for kind in kinds for it in kind.values())


def _is_the_scripts(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None) or getattr(getattr(type(function), "__call__", None), "__code__", None)  # noqa: B004 - Its code is wanted.
    return code is not None and frames.is_users(code.co_filename)


@contextlib.contextmanager
def _frozen(parameters: list[Tensor]) -> Iterator[None]:
    for it in parameters:
        it.requires_grad_(False)
    try:
        yield
    finally:
        for it in parameters:
            it.requires_grad_(True)

