"""What a model's weights are when it is first called: packed into few bits or not, frozen or not, adapted or not.

Looked at by element type, number of dimensions, `requires_grad` and class; no value is read. A weight is packed where its storage has whole numbers or floats
of 8 bits or fewer. Only models that have something to report are written: packed weights, or adapters.
"""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING, Any

from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plimsoll_agent.kinds import Module, Named, Tensor, Torch
    from plimsoll_agent.run.owners import Owners
    from plimsoll_agent.run.recording import Recording

LEAST_BYTES = 1 << 20
MOST_GROUPS = 64
_NUMBER = re.compile(r"(?:^|(?<=\.))\d+(?=\.|$)")


class Weights:
    """Writes down what the weights of each model are."""

    def __init__(self, torch: Torch, recording: Recording, owners: Owners) -> None:
        self._torch, self._recording, self._owners = torch, recording, owners
        self._written: dict[str, Named] = {}

    @guarded
    def look(self) -> None:
        """A model is called for the first time; others may have changed since."""
        for root, model in self._owners.models():
            seen = self._of(root)
            if seen is not None and self._written.get(model.name) != seen:
                self._written[model.name] = seen
                self._recording.write("weights", model=model.name, **seen)

    def _of(self, root: Module) -> Named | None:
        packed = modules = 0
        tables = {tuple(it.weight.shape) for it in root.modules() if isinstance(it, self._torch.nn.Embedding)}
        wide: dict[tuple[str, int, bool], list[Any]] = {}
        adapted: list[tuple[str, int]] = []
        adapters = 0
        of_adapters, of_bases = _adapters(root)
        for path, module in root.named_modules():
            sizes = [_packed(it) for it in self._tensors(module)]
            packed += sum(sizes)
            modules += any(sizes)
            for name, parameter in module._parameters.items():
                if parameter is None or not _has_values(self._torch, parameter) or not parameter.is_cuda or not parameter.is_floating_point() or _packed(parameter):
                    continue
                size = parameter.numel() * parameter.element_size()
                if id(parameter) in of_adapters:
                    adapters += size
                elif id(parameter) in of_bases and parameter.requires_grad and 2 <= parameter.dim():
                    adapted.append(("%s.%s" % (path, name), size))
                # One that is trained is meant to be as it is; without gradients nothing is trained.
                is_frozen = not (parameter.requires_grad and self._torch.is_grad_enabled())
                if is_frozen and id(parameter) not in of_adapters and 2 <= parameter.dim() and 2 <= parameter.element_size():
                    key = (_NUMBER.sub("*", "%s.%s" % (path, name)), 8 * parameter.element_size(), tuple(parameter.shape) in tables)
                    group = wide.setdefault(key, [0, 0, type(module).__name__])
                    group[0] += 1
                    group[1] += size
        if not packed and not adapted:
            return None
        groups = [
            {"where": where, "bits": bits, "table": table, "tensors": tensors, "bytes": size, "class": kind}
            for (where, bits, table), (tensors, size, kind) in wide.items()
            if LEAST_BYTES <= size
        ]
        groups.sort(key=lambda it: -it["bytes"])
        return {
            "packed": packed,
            "packed_modules": modules,
            "wide": groups[:MOST_GROUPS],
            "adapters": adapters,
            "unfrozen": {"tensors": len(adapted), "bytes": sum(it for _, it in adapted), "first": adapted[0][0] if adapted else None},
        }

    def _tensors(self, module: Module) -> Iterator[Tensor]:
        """Its own parameters, and the tables of whole numbers that some libraries keep as buffers in the place of a weight."""
        own = [it for it in module._parameters.values() if it is not None and _has_values(self._torch, it)]
        yield from own
        if not any(it.is_floating_point() and 2 <= it.dim() for it in own):
            for it in module._buffers.values():
                if it is not None and it.dim() == 2 and it.dtype != self._torch.bool and it.dtype != self._torch.int64:
                    yield it


def _has_values(torch: Torch, parameter: Tensor) -> bool:
    """A lazy module's parameter has no shape before the module's first call, and raises where it is asked."""
    return not torch.nn.parameter.is_lazy(parameter)


def _packed(tensor: Tensor) -> int:
    """The bytes of a weight on a device that is packed; 0 of another."""
    if not tensor.is_cuda:
        return 0
    if hasattr(tensor, "__tensor_flatten__"):
        inner = [getattr(tensor, it) for it in tensor.__tensor_flatten__()[0]]
        size = sum(it.numel() * it.element_size() for it in inner)
        return size if size < 0.75 * math.prod(tensor.shape) * tensor.element_size() else 0
    size = int(tensor.numel() * tensor.element_size())
    is_whole = not tensor.is_floating_point() and not tensor.is_complex()
    return size if 2 <= tensor.dim() and (is_whole or tensor.element_size() == 1) and LEAST_BYTES >> 6 <= size else 0


def _adapters(root: Module) -> tuple[set[int], set[int]]:
    """The parameters (by id) that adapters have, and those of the layers that they adapt."""
    tuners = sys.modules.get("peft.tuners.tuners_utils")
    layer = getattr(tuners, "BaseTunerLayer", None)
    mine: set[int] = set()
    bases: set[int] = set()
    for module in root.modules():
        if layer is not None and isinstance(module, layer):
            base = {id(it) for it in module.get_base_layer().parameters()}
            bases |= base
            mine |= {id(it) for it in module.parameters()} - base
        elif callable(getattr(module, "adapter_params", None)):  # torchtune's protocol.
            named = set(module.adapter_params())
            for name, it in module.named_parameters():
                (mine if name in named else bases).add(id(it))
    return mine, bases
