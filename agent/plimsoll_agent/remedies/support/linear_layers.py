"""The linear layers of a model, PyTorch's and transformers' own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Module, Torch


def linear_layers(torch: Torch, model: Module) -> Any:
    """(layer, inputs, outputs) of the linear layers but the last one, which is the model's head."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    found = []
    for it in model.modules():
        if type(it) is torch.nn.Linear:
            found.append((it, it.in_features, it.out_features))
        elif is_transposed_linear(it):
            found.append((it, it.weight.size(0), it.weight.size(1)))
    if head is None:
        return found[:-1]
    return [it for it in found if it[0] is not head]


def is_transposed_linear(layer: Module) -> bool:
    """Whether it is transformers' own linear layer, whose weight is the other way around."""
    return type(layer).__name__ == "Conv1D" and getattr(getattr(layer, "weight", None), "dim", int)() == 2
