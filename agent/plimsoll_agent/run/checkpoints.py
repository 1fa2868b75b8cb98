"""Sees where reentrant checkpointing cuts the graph: no input wants a gradient, so the layers inside get none, although they have something to train.

`enable_input_require_grads()` of transformers and PEFT is for that. PyTorch itself warns of the inputs, also where all layers inside are frozen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Function, Note, Torch

CODE = "checkpointing-no-gradients"
_DEEPEST = 8


class Checkpoints:
    """Looks at what is checkpointed until it has said once that something is wrong."""

    def __init__(self, torch: Torch, note: Note) -> None:
        self._torch, self._note = torch, note
        self._has_said = False

    def install(self) -> None:
        """Takes its place as soon as `torch.utils.checkpoint` is imported."""
        after_import("torch.utils.checkpoint", self._wrap)

    def _wrap(self, module: Any) -> None:
        function = getattr(module, "CheckpointFunction", None)
        if function is not None and "forward" in vars(function):
            patch.replace(function, "forward", self._around)

    def _around(self, real: Function) -> Function:
        def forward(ctx: Any, run_function: Any, *args: Any) -> Any:
            self._look(run_function, args)
            return real(ctx, run_function, *args)

        return forward

    @guarded
    def _look(self, function: Any, inputs: Any) -> None:
        if self._has_said or any(isinstance(it, self._torch.Tensor) and it.requires_grad for it in inputs):
            return
        module = self._module_of(function)
        if module is not None and module.training and any(it.requires_grad for it in module.parameters()):
            self._has_said = True
            self._note(
                CODE,
                "activation checkpointing (use_reentrant=True) gets inputs that want no gradient, so nothing in `%s` is trained, and the run needs less memory than it should: "
                'call model.enable_input_require_grads(), or gradient_checkpointing_enable({"use_reentrant": False}) (plimsoll explain --code checkpointing/no-effect)' % type(module).__name__,
            )

    def _module_of(self, function: Any) -> Any:
        """The module that a checkpointed function calls; None if it does not show."""
        for _ in range(_DEEPEST):
            if isinstance(function, self._torch.nn.Module):
                return function
            owner = getattr(function, "__self__", None)
            function = owner if owner is not None else getattr(function, "func", None)
        return None
