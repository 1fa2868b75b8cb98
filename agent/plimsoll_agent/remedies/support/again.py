"""Runs a whole call again in backward, and takes the gradients from this second run.

PyTorch's checkpoints put what they compute again into the graph of the first run, tensor by tensor. That cannot be where the
second run is another program: torch.compile makes a new one when sizes change, which serves the first sizes, too. Here the
first run leaves no graph. A gradient of a gradient cannot be had from it.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.remedies.support import rerun
from plimsoll_agent.run.host_random import HostRandom
from plimsoll_agent.run.nested import rebuilt, tensors_in
from plimsoll_agent.run.refusal import unsuited

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Function, Module, Named, Torch

_WITHOUT_CUDA_GRAPHS = {"reduce-overhead": None, "max-autotune": "max-autotune-no-cudagraphs"}


class Again:
    """`run`, a call of `module` or of a part of it, with everything as it is now: random numbers, precision."""

    def __init__(self, torch: Torch, module: Module, run: Function) -> None:
        self._torch, self._module, self._run = torch, module, run
        self._choices, self._autocast = HostRandom(), rerun.autocast_of(torch)
        self._devices = sorted({it.device.index for it in module.parameters() if it.is_cuda})
        self._states = [torch.get_rng_state(), *(torch.cuda.get_rng_state(it) for it in self._devices)]

    def __call__(self) -> Any:
        torch = self._torch
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices=self._devices))
            torch.set_rng_state(self._states[0])
            for device, state in zip(self._devices, self._states[1:]):
                torch.cuda.set_rng_state(state, device)
            for it in self._autocast:
                stack.enter_context(torch.autocast(**it))
            stack.enter_context(rerun.as_before(torch, self._module, self._choices)[1])
            return self._run()


def without_graph(
    torch: Torch, remedy: str, module: Module, run: Function, inputs: Any, leaves: Any, around: Any = contextlib.nullcontext
) -> Any:
    """What `run(inputs)` returns. It runs again when backward comes, for the gradients of `leaves` and of what in `inputs` wants
    one."""
    given = tensors_in(torch, inputs)
    leaves = list({id(it): it for it in (*leaves, *(it for it in given if it.requires_grad))}.values())

    def run_again() -> tuple[Any, list[Any]]:
        # What comes from before must not be gone through from here.
        fresh = {id(it): it.detach().requires_grad_() for it in leaves if it.grad_fn is not None}
        instead = rebuilt(torch, inputs, lambda it: fresh.get(id(it), it))
        return run(instead), [fresh.get(id(it), it) for it in leaves]

    again = Again(torch, module, run_again)
    versions = [it._version for it in given if not it.is_inference()]
    known, is_made = {id(it) for it in given}, []
    # A program that is compiled runs as it will run again: without gradients it would be another one, to be compiled, too.
    as_again = is_compiled(torch, module)
    with torch.set_grad_enabled(as_again), around():
        output = run(inputs)
    if as_again:
        output = rebuilt(torch, output, lambda it: it if id(it) in known else it.detach())
    # Of a whole number there is no gradient; what is handed through has its own; what is there twice is one.
    for it in tensors_in(torch, output):
        is_made.append((it.is_floating_point() or it.is_complex()) and id(it) not in known)
        known.add(id(it))

    def gradients_of(gradients: Any) -> Any:
        if [it._version for it in given if not it.is_inference()] != versions:
            raise unsuited(remedy, "%s: its inputs change before plimsoll runs it again from them" % type(module).__name__)
        with torch.enable_grad(), around():
            result, wanted = again()
        made = [it for it, is_one in zip(tensors_in(torch, result), is_made) if is_one]
        return gradients_at(torch, made, gradients, wanted)

    made = [it for it, is_one in zip(tensors_in(torch, output), is_made) if is_one]
    handed = dict(zip(map(id, made), with_gradients(torch, remedy, made, leaves, gradients_of)))
    return rebuilt(torch, output, lambda it: handed.get(id(it), it))


def gradients_at(torch: Torch, outputs: Any, gradients: Any, leaves: Any) -> Any:
    """The gradients of `leaves`, where `outputs` have these; None where there is none."""
    pairs = [(it, gradient) for it, gradient in zip(outputs, gradients) if gradient is not None and it.requires_grad]
    wanted = [it for it in leaves if it.requires_grad]
    if not pairs or not wanted:
        return [None] * len(leaves)
    found = iter(torch.autograd.grad([it for it, _ in pairs], wanted, [it for _, it in pairs], allow_unused=True))
    return [next(found) if it.requires_grad else None for it in leaves]


def with_gradients(torch: Torch, remedy: str, tensors: Any, leaves: Any, gradients_of: Function) -> Any:
    """These tensors, which have no graph, with one: backward asks `gradients_of(gradients)` for the gradients of `leaves`, given
    those of the tensors, None where there is none."""
    return _function(torch).apply(remedy, gradients_of, len(tensors), *tensors, *leaves) if tensors else ()


@functools.cache
def _function(torch: Torch) -> Any:
    class WithGradients(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, remedy: str, gradients_of: Function, n: int, *tensors: Any) -> Any:
            ctx.set_materialize_grads(False)
            ctx.remedy, ctx.gradients_of, ctx.n = remedy, gradients_of, n
            # Said to be written into, they are handed on as they are, and not as views that nobody may write into.
            ctx.mark_dirty(*(it for it in tensors[:n] if not it._is_view()))
            return tensors[:n]

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> tuple[Any, Any, Any, Any, Any]:
            gradients_of, ctx.gradients_of = ctx.gradients_of, None
            if gradients_of is None:
                raise unsuited(ctx.remedy, "this script: it runs backward twice through the same loss")
            if torch.is_grad_enabled():
                raise unsuited(ctx.remedy, "this script: it computes the gradient of a gradient")
            return (None, None, None, *[None] * ctx.n, *gradients_of(gradients))

    return WithGradients


def without_cuda_graphs(torch: Torch) -> None:
    """From here on `torch.compile` records nothing in CUDA graphs. The memory of what a graph returns is written again when the graph runs
    again, for the next part; and what runs again in backward would be recorded in a thread in which no library was started, which CUDA forbids."""
    compile = torch.compile

    def unrecorded(*args: Any, mode: Any = None, options: Named | None = None, **kwargs: Any) -> Any:
        if options and options.get("triton.cudagraphs"):
            options = {**options, "triton.cudagraphs": False}
        return compile(*args, mode=_WITHOUT_CUDA_GRAPHS.get(mode, mode), options=options, **kwargs)

    patch.put(torch, "compile", unrecorded)


def is_compiled(torch: Torch, module: Module) -> bool:
    """Whether the module, or a part of it, was given to torch.compile."""
    return any(is_compiled_itself(it) for it in module.modules())


def is_compiled_itself(module: Module) -> bool:
    """Whether it was given to torch.compile, and not only a part of it."""
    is_one = type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None
    return is_one or hasattr(module.forward, "_torchdynamo_orig_callable")
