"""What a model's weights are when it is first called: packed into few bits or not, frozen or not, adapted or not.

Looked at by element type, number of dimensions, `requires_grad` and class; no value is read. A weight is packed where its storage has whole numbers or floats
of 8 bits or fewer. Which list left a weight out is read from the settings that transformers keeps with a model. Only models that have something to report are
written: packed weights, weights that a list left out, or adapters.
"""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plimsoll_agent.kinds import Module, Named, Tensor, Torch
    from plimsoll_agent.run.owners import Owners
    from plimsoll_agent.run.recording import Recording

LEAST_BYTES = 1 << 20
MOST_GROUPS = 64
MOST_ENTRIES = 8
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
            before = self._written.get(model.name, {})
            if seen is not None and {**before, "uncalled": 0} != {**seen, "uncalled": 0}:
                self._written[model.name] = seen
                self._recording.write("weights", model=model.name, **seen)

    @guarded
    def stepped(self) -> None:
        """The first step is over: who takes part in training was called."""
        self.look()
        models = [(root, model.name, _source(root)) for root, model in self._owners.models()]
        for packed, name, source in models:
            seen = self._written.get(name)
            if seen is None or not seen["packed_modules"] or not source or not self._owners.was_called(packed):
                continue
            others = [root for root, _, of in models if root is not packed and of == source and not self._owners.was_called(root)]
            size = sum(it.numel() * it.element_size() for root in others for it in root.parameters() if it.is_cuda and not _packed(it))
            if size:
                self._written[name] = seen = dict(seen, uncalled=size)
                self._recording.write("weights", model=name, **seen)

    def _of(self, root: Module) -> Named | None:
        packed = modules = 0
        skips = _skips(root)
        seen: set[int] = set()  # A head that shares the table of an embedding is there once.
        tables = {tuple(it.weight.shape) for it in root.modules() if isinstance(it, self._torch.nn.Embedding)}
        wide: dict[tuple[str, int, bool, Skip | None], list[Any]] = {}
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
                if id(parameter) in seen:
                    continue
                seen.add(id(parameter))
                size = parameter.numel() * parameter.element_size()
                if id(parameter) in of_adapters:
                    adapters += size
                elif id(parameter) in of_bases and parameter.requires_grad and 2 <= parameter.dim():
                    adapted.append(("%s.%s" % (path, name), size))
                # One that is trained is meant to be as it is; without gradients nothing is trained.
                is_frozen = not (parameter.requires_grad and self._torch.is_grad_enabled())
                if is_frozen and id(parameter) not in of_adapters and 2 <= parameter.dim() and 2 <= parameter.element_size():
                    skip, entry = next((it for it in (it.of(path) for it in skips) if it is not None), (None, None))
                    key = (_NUMBER.sub("*", "%s.%s" % (path, name)), 8 * parameter.element_size(), tuple(parameter.shape) in tables, skip)
                    group = wide.setdefault(key, [0, 0, type(module).__name__, []])
                    if entry is not None and entry not in group[3] and len(group[3]) < MOST_ENTRIES:
                        group[3].append(entry)
                    group[0] += 1
                    group[1] += size
        if not packed and not adapted and not any(skip for _, _, _, skip in wide):
            return None
        groups: list[Named] = [
            {"where": where, "bits": bits, "table": table, "tensors": tensors, "bytes": size, "class": kind, "skip": skip and dict(skip._asdict(), entries=entries)}
            for (where, bits, table, skip), (tensors, size, kind, entries) in wide.items()
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


class Skip(NamedTuple):
    """A list of modules that are not to be quantized."""

    list: str
    """The setting, as in `llm_int8_skip_modules`."""
    by: str
    """Who wrote the list: the `script`, or the `checkpoint` that was quantized already."""


class _Lists:
    """The lists of one model that transformers quantized: each setting of its configuration that is a list of names."""

    def __init__(self, path: str, settings: Any, by: str) -> None:
        self._within = path + "." if path else ""
        named = settings if isinstance(settings, dict) else getattr(settings, "__dict__", {})
        lists = {name: it for name, it in named.items() if isinstance(it, (list, tuple))}
        self._all = [(Skip(name, by), entry) for name, it in lists.items() for entry in it if isinstance(entry, str) and entry]

    def of(self, path: str) -> tuple[Skip, str] | None:
        """The list, and its entry, that leaves out the module at `path`, which is one that was not quantized."""
        if not path.startswith(self._within):
            return None
        name = path[len(self._within) :].replace(".base_layer", "")
        return next((it for it in self._all if _names(it[1], name)), None)


def _names(entry: str, module: str) -> bool:
    """As transformers reads an entry: a pattern from the beginning, the end of a name, or, in its older releases, a part of one."""
    if module.endswith(entry) or ".%s." % entry in ".%s." % module:
        return True
    try:
        return re.match(entry, module) is not None
    except re.error:
        return False


def _skips(root: Module) -> list[_Lists]:
    """The lists of modules to skip of the models in `root`, the innermost first."""
    found = []
    for path, module in root.named_modules():
        quantizer = getattr(module, "hf_quantizer", None)
        settings = getattr(quantizer, "quantization_config", None)
        # Who has a checkpoint unpacked wants it in 16 bits.
        if settings is not None and not getattr(settings, "dequantize", False):
            found.append(_Lists(path, settings, "checkpoint" if getattr(quantizer, "pre_quantized", False) else "script"))
    return found[::-1]


def _source(root: Module) -> str | None:
    """Where transformers loaded it from."""
    names = (getattr(getattr(it, "config", None), "_name_or_path", None) for it in root.modules())
    return next((it for it in names if isinstance(it, str) and it), None)


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
