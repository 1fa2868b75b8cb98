"""What low-rank adapters would take: the model is frozen, and each of its linear layers gets two small matrices to train.

Another training than the script's, so it is never part of a plan: it runs on the phantom only, for the advice of `plimsoll
fit`, and as a person would write it with `peft`.

Parameters: `rank`, 8 unless given.
"""

import weakref

from plimsoll_agent.remedies import CannotApply


def apply(torch, parameters, places, note):
    rank = parameters.get("rank", 8)
    optimizers = made_optimizers(torch)

    def prepare(module):
        layers = [layer for layer, _, _ in linear_layers(torch, module)]
        adapters = _adapt(torch, module, rank)
        if not adapters:
            raise CannotApply(
                "plimsoll: the advice lora does not suit %s: it has no linear layers inside" % type(module).__name__
            )
        _train_only(module, adapters, optimizers)
        # The model's own from now on, which is how others see that it is trained.
        for layer, down, up in zip(layers, adapters[::2], adapters[1::2]):
            layer.register_parameter("lora_down", down)
            layer.register_parameter("lora_up", up)

    places.before_training(prepare)


def made_optimizers(torch):
    """Every optimizer that the script makes from now on."""
    made, optimizer_class = weakref.WeakSet(), torch.optim.Optimizer
    original = optimizer_class.__init__

    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        made.add(self)

    optimizer_class.__init__ = __init__
    return made


def is_transposed_linear(layer):
    """Whether it is transformers' own linear layer, whose weight is the other way around."""
    return type(layer).__name__ == "Conv1D" and getattr(getattr(layer, "weight", None), "dim", int)() == 2


def linear_layers(torch, model):
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


def _adapt(torch, model, rank):
    functional, adapters = torch.nn.functional, []
    for layer, inputs, outputs in linear_layers(torch, model):
        options = {"device": layer.weight.device, "dtype": layer.weight.dtype}
        if not options["dtype"].is_floating_point:
            options["dtype"] = torch.get_default_dtype()
        down = torch.nn.Parameter(torch.randn(rank, inputs, **options) / inputs**0.5)
        up = torch.nn.Parameter(torch.zeros(outputs, rank, **options))
        adapters += [down, up]

        def add(layer, given, output, down=down, up=up):
            return output + functional.linear(functional.linear(given[0].to(down.dtype), down), up).to(output.dtype)

        layer.register_forward_hook(add)
    return adapters


def _train_only(model, adapters, optimizers):
    own = {id(it) for it in model.parameters()}
    for it in model.parameters():
        it.requires_grad_(False)
        it.grad = None
    for it in optimizers:
        for group in it.param_groups:
            if any(id(p) in own for p in group["params"]):
                group["params"] = [p for p in group["params"] if id(p) not in own] + adapters
                adapters = []
