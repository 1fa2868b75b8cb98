"""What low-rank adapters would need: the model is frozen, and each of its linear layers gets two small matrices to train.

Another training than the script's, so it is never part of a plan: it runs on the phantom only, for the advice of `plimsoll
fit`, and as a person would write it with `peft`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent.remedies.support.linear_layers import linear_layers
from plimsoll_agent.remedies.support.optimizers import made_optimizers
from plimsoll_agent.run.refusal import CannotApply

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plimsoll_agent.kinds import Module, Named, Note, Optimizer, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks

RANK = 8


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    optimizers = made_optimizers(torch)

    def prepare(module: Module) -> None:
        layers = [layer for layer, _, _ in linear_layers(torch, module)]
        adapters = _adapt(torch, module)
        if not adapters:
            raise CannotApply(
                "plimsoll: the advice lora does not suit %s: it has no linear layers inside" % type(module).__name__
            )
        _train_only(module, adapters, optimizers)
        # The model's own from now on, which is how others see that it is trained.
        for layer, down, up in zip(layers, adapters[::2], adapters[1::2]):
            layer.register_parameter("lora_down", down)
            layer.register_parameter("lora_up", up)

    hooks.before_training(prepare)


def _adapt(torch: Torch, model: Module) -> Any:
    functional, adapters = torch.nn.functional, []
    for layer, inputs, outputs in linear_layers(torch, model):
        options = {"device": layer.weight.device, "dtype": layer.weight.dtype}
        if not options["dtype"].is_floating_point:
            options["dtype"] = torch.get_default_dtype()
        down = torch.nn.Parameter(torch.randn(RANK, inputs, **options) / inputs**0.5)
        up = torch.nn.Parameter(torch.zeros(outputs, RANK, **options))
        adapters += [down, up]

        def add(layer: Module, given: Any, output: Any, down: Any = down, up: Any = up) -> Any:
            return output + functional.linear(functional.linear(given[0].to(down.dtype), down), up).to(output.dtype)

        layer.register_forward_hook(add)
    return adapters


def _train_only(model: Module, adapters: Any, optimizers: Iterable[Optimizer]) -> None:
    own = {id(it) for it in model.parameters()}
    for it in model.parameters():
        it.requires_grad_(False)
        it.grad = None
    for it in optimizers:
        for group in it.param_groups:
            if any(id(p) in own for p in group["params"]):
                group["params"] = [p for p in group["params"] if id(p) not in own] + adapters
                adapters = []
