"""Where remedies take hold of an unchanged script: the outermost call of a model, and backward.

One wrapper each, whatever the number of remedies. A call that is made inside another one (a part of the
model, a chunk of the batch that a remedy runs) passes through. So does one that torch.compile traces: a compiled model is
reached, one that a compiled function calls is not; see `functions`.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.gradients import Gradients

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plimsoll_agent.kinds import Arguments, Around, Backward, Function, Module, Named, Nested, Tensor, Torch
    from plimsoll_agent.run.recording import Recording


class Hooks:
    """Collects what remedies want to do, and then takes PyTorch's places once."""

    def __init__(self, torch: Torch, recording: Recording) -> None:
        self._torch = torch
        self.recording = recording
        self.on_shares = False  # Several processes; gradients become whole in backward only.
        self.least_share: int | None = None  # Of a call's samples that several processes share, how many the last of them has.
        self._around_calls: list[Around] = []
        self._around_plain_calls: list[Around] = []
        self._before_backward: list[Callable[[], object]] = []
        self.backward_options: Named = {}  # Of the outermost backward pass that is under way: what the script asked it for.
        self._around_backwards: list[Callable[[Backward, Any, Any], Any]] = []
        self._after_last_backward: list[Callable[[tuple[Tensor, ...]], object]] = []
        self._keep_graph: list[Callable[[], bool]] = []
        self._ours: patch.Replacement | None = None
        self._thread = threading.local()
        self._gradients = Gradients(torch)

    def around_call(self, function: Around, outermost: bool = False) -> None:
        """`function(module, call, args, kwargs)` runs in place of `call(*args, **kwargs)` for each outermost
        call of a module that has parameters. Earlier ones are further out."""
        self._around_calls.insert(0 if outermost else len(self._around_calls), function)

    @property
    def take_calls(self) -> bool:
        """Whether anything is around calls."""
        return bool(self._around_calls)

    def around_plain_call(self, function: Around) -> None:
        """`function(module, call, args, kwargs)` runs in place of `call(*args, **kwargs)` for each outermost call of a module
        that has no parameters."""
        self._around_plain_calls.append(function)

    @property
    def is_inside(self) -> bool:
        """Whether this thread is in an outermost call."""
        return getattr(self._thread, "inside", False)

    @contextlib.contextmanager
    def as_one_call(self) -> Iterator[None]:
        """What is called inside is inside of an outermost call."""
        before, self._thread.inside = self.is_inside, True
        try:
            yield
        finally:
            self._thread.inside = before

    def before_call(self, function: Callable[[Module], object], when: Callable[[Module], bool] = lambda module: True) -> None:
        """`function(module)` runs before a model's first outermost call, once for each model; among what is around calls it
        has the place that it was given in."""
        prepared: weakref.WeakSet[Module] = weakref.WeakSet()

        def around(module: Module, call: Function, args: Arguments, kwargs: Named) -> Any:
            if module not in prepared and when(module):
                prepared.add(module)
                function(module)
            return call(*args, **kwargs)

        self.around_call(around)

    def before_training(self, function: Callable[[Module], object]) -> None:
        """The same for its first one in training."""
        self.before_call(function, self.is_training)

    def before_backward(self, function: Callable[[], object]) -> None:
        """`function()` runs before each backward pass that the script starts, and before each optimizer step."""
        self._before_backward.append(function)

    def around_backward(self, function: Callable[[Backward, Any, Any], Any]) -> None:
        """`function(run, tensors, grad_tensors)` runs in place of `run(tensors, grad_tensors)` for each
        `backward` that the script starts. Earlier ones are further out."""
        self._around_backwards.append(function)

    def after_last_backward(self, function: Callable[[tuple[Tensor, ...]], object]) -> None:
        """`function(tensors)` runs after each backward pass whose graph the script does not keep, with the tensors
        that it began from."""
        self._after_last_backward.append(function)

    def keep_graph_where(self, function: Callable[[], bool]) -> None:
        """Where `function()` is true, PyTorch keeps the graph of the outermost backward pass that begins, unasked."""
        self._keep_graph.append(function)

    def install(self) -> None:
        """Takes hold. Nothing is wrapped that no remedy asked for."""
        if self._around_calls:
            self._wrap_call()
        autograd = self._torch.autograd
        if self._around_backwards or self._after_last_backward:
            patch.replace(autograd, "backward", self._wrapped_backward)
        if self._before_backward:
            for name in ("backward", "grad"):
                patch.replace(autograd, name, self._after_what_is_asked)

    def is_training(self, module: Module, inputs: Nested = ()) -> bool:
        """Whether this call is training: see `Gradients`."""
        return self._gradients.are_wanted(module, inputs)

    def _wrap_call(self) -> None:
        module_class, thread = self._torch.nn.Module, self._thread
        original, around, around_plain = module_class.__call__, self._around_calls, self._around_plain_calls
        graph_task, is_traced = self._torch._C._current_graph_task_id, self._torch.compiler.is_compiling

        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
            # Compiled code must not depend on state of the agent: each other value would compile it again.
            # During backward, in any thread, a call is a part of a model that runs again.
            if is_traced() or getattr(thread, "inside", False) or graph_task() != -1:
                return original(self, *args, **kwargs)
            if next(self.parameters(), None) is None:
                plain: Function = functools.partial(original, self)
                for function in around_plain:
                    plain = _starred(functools.partial(function, self, plain))
                return plain(*args, **kwargs)

            def call(*args: Any, **kwargs: Any) -> Any:
                return original(self, *args, **kwargs)

            for function in reversed(around):
                call = functools.partial(function, self, call)
                call = _starred(call)
            thread.inside = True
            try:
                return call(*args, **kwargs)
            finally:
                thread.inside = False

        self._ours = patch.put(module_class, "__call__", __call__)

    def step_aside(self) -> None:
        """Restores PyTorch's own call, if the replacement is not wrapped: torch.compile traces through it."""
        if self._ours is not None:
            self._ours.undo()

    def _wrapped_backward(self, original: Function) -> Function:
        tensor_class, thread = self._torch.Tensor, self._thread

        @functools.wraps(original)
        def backward(
            tensors: Any, grad_tensors: Any = None, retain_graph: Any = None, create_graph: bool = False, *args: Any, **kwargs: Any
        ) -> Any:
            if getattr(thread, "inside", False):
                return original(tensors, grad_tensors, retain_graph, create_graph, *args, **kwargs)

            if self._torch._C._current_graph_task_id() == -1:
                others = bool(args or any(kwargs.values()))
                self.backward_options = {"retain_graph": retain_graph, "create_graph": create_graph, "others": others}

            def run(tensors: Any, grad_tensors: Any) -> Any:
                is_outermost = self._torch._C._current_graph_task_id() == -1
                keep = True if is_outermost and any(it() for it in self._keep_graph) else retain_graph
                return original(tensors, grad_tensors, keep, create_graph, *args, **kwargs)

            for function in reversed(self._around_backwards):
                run = functools.partial(function, run)
            result = run(tensors, grad_tensors)
            if not retain_graph and not create_graph:
                for function in self._after_last_backward:
                    function((tensors,) if isinstance(tensors, tensor_class) else tuple(tensors))
            return result

        return backward

    def _after_what_is_asked(self, run: Function) -> Function:
        hooks = self._before_backward
        thread = self._thread

        @functools.wraps(run)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if not getattr(thread, "inside", False):
                for hook in hooks:
                    hook()
            return run(*args, **kwargs)

        return wrapped


def _starred(call: Function) -> Function:
    """A function of `(args, kwargs)` as one of `(*args, **kwargs)`."""

    def starred(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs)

    return starred
