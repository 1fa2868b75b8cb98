"""Which switches of its framework a program has: the arguments of a Trainer of transformers and of Lightning, of accelerate's
Accelerator, the loader that training takes its batches from, collators of transformers, calls of `generate` and of pipelines of diffusers, how a model of transformers is loaded, the settings of
PEFT's low-rank adapters, the configuration of DeepSpeed. `plimsoll fit` says in them what would help, and runs that: so they are looked at again in a run with other switches, where nothing else may have changed.

Values are those that the framework ended up with, wherever they came from. The rest of a framework's settings is one digest.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib.util
import itertools
import json
import os
import sys
import zlib
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch, source
from plimsoll_agent.run import frames
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from types import FrameType

    from plimsoll_agent.kinds import Function, Library, Named, Torch

OF_TRAINER = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "gradient_checkpointing",
    "bf16",
    "fp16",
    "optim",
    "torch_empty_cache_steps",
    "train_sampling_strategy",
    "group_by_length",
    "pad_to_multiple_of",
)
"""Those that a version or a subclass of its arguments has."""
OF_ZERO = {
    "reduce_bucket_size": "reduce_bucket_size",
    "allgather_bucket_size": "allgather_bucket_size",
    "stage3_prefetch_bucket_size": "prefetch_bucket_size",
    "stage3_param_persistence_threshold": "param_persistence_threshold",
    "stage3_max_live_parameters": "max_live_parameters",
    "sub_group_size": "sub_group_size",
}
"""Numbers of DeepSpeed's ZeRO, as its configuration and as its objects call them."""
_OF_ONE_RUN = {"output_dir", "logging_dir", "run_name"}
"""What may differ between two runs of the same script: a time or a number of the day is in their names."""
LIBRARIES = ("bitsandbytes",)
"""What switches need that transformers does not install."""
_PLAIN = (str, int, float, bool, type(None))


class Frameworks:
    """What was seen, each with the line of the script that made it."""

    def __init__(self) -> None:
        self._seen: list[Any] = []
        self._loaders: list[Any] = []
        self._dataset: int | None = None
        self._accumulates = False
        self._config: str | None = None

    def install(self, torch: Torch) -> None:
        """Looks at what is made; nothing else becomes of it."""
        from torch.utils.data import DataLoader, dataloader

        after_import("transformers.training_args", lambda it: _after(it.TrainingArguments, "__post_init__", self._arguments))
        for name in ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer"):
            after_import(name, lambda it: _after(it.Trainer, "__init__", self._lightning))
        after_import("accelerate.accelerator", self._accelerate)
        after_import("transformers.generation.utils", lambda it: _after(it.GenerationMixin, "generate", self._generates))
        after_import("diffusers.pipelines.pipeline_utils", self._diffusers)
        after_import("transformers.modeling_utils", self._loading)
        _after(json, "load", self._read)
        after_import("hjson", lambda it: _after(it, "load", self._read))
        after_import("deepspeed.runtime.config", lambda it: _after(it.DeepSpeedConfig, "__init__", self._deepspeed))
        after_import("transformers.data.data_collator", self._collators)
        after_import("peft.tuners.lora.model", lambda it: _after(it.LoraModel, "__init__", self._adapted))
        after_import("peft.tuners.lora.config", lambda it: _after(it.LoraConfig, "__post_init__", self._adapters))
        _after(DataLoader, "__init__", self._loader)
        _after(dataloader._BaseDataLoaderIter, "__next__", self._next)

    @guarded
    def backward(self) -> None:
        """The batch that was last taken from a loader is one of training."""
        for it in self._loaders:
            it["trains"] |= self._dataset is not None and it["dataset"] == self._dataset

    def found(self, place: Function) -> Any:
        """All of it; `place(file, line, name, span)` describes the call, if it is certain which that is."""
        found, accumulates = [], self._accumulates
        for it in self._seen + [it for it in self._loaders if it["trains"]]:
            described: Any = None
            if it["what"] == "deepspeed":
                described = _configuration(it)
            elif it["file"] is not None:
                described = place(it["file"], it["line"], it["name"], it["span"])
            if described is None and not it["from_words"]:
                continue
            values = dict(it["values"], accumulates=accumulates) if it["what"] == "accelerate" else it["values"]
            at = it.get("at")
            if at is not None and at["file"] == it["file"]:
                # Behind the line that brings a pipeline to the device, not where it is called, which may be often.
                described = dict(place(at["file"], at["line"], at["name"], at["span"]) or described, model=described["model"])
            known = {"what": it["what"], "name": it["name"] or "", "rest": it["rest"], "from_words": bool(it["from_words"])}
            found.append(dict(known, values=values, site=described))
        return found

    def missing(self) -> list[str]:
        """The libraries that this environment does not have."""
        return [it for it in LIBRARIES if it not in sys.modules and importlib.util.find_spec(it) is None]

    def _saw(self, what: str, name: str | None, values: Any, rest: Any, **more: Any) -> Any:
        frame: FrameType | None = sys._getframe(2)
        stack = []
        while frame is not None and (frame.f_code.co_filename.startswith("<") or not frames.is_users(frame.f_code.co_filename)):
            stack.append(frame)
            frame = frame.f_back
        parsed = any("hf_argparser" in it.f_code.co_filename and _reads_the_command(it) for it in stack)
        it = {"what": what, "name": name, "values": values, "rest": "%08x" % zlib.crc32(repr(rest).encode()), "from_words": parsed}
        it.update(more, file=frame and frame.f_code.co_filename, line=frame and frame.f_lineno, span=frame and span_of(frame))
        return it

    def _arguments(self, it: Any) -> None:
        fields = {field.name: getattr(it, field.name, None) for field in dataclasses.fields(it)}
        values = {name: fields.pop(name) for name in OF_TRAINER if name in fields}
        values["optim"] = getattr(values.get("optim"), "value", values.get("optim"))
        rest = sorted((name, value) for name, value in fields.items() if name not in _OF_ONE_RUN and isinstance(value, _PLAIN))
        self._seen.append(self._saw("transformers", type(it).__name__, values, rest))

    def _collators(self, module: Library) -> None:
        """Those that pad, with a constructor of their own."""

        def made(it: Any, *_: Any, **__: Any) -> None:
            self._seen.append(self._saw("collator", type(it).__name__, {"pad_to_multiple_of": it.pad_to_multiple_of}, ()))

        for kind in list(vars(module).values()):
            if isinstance(kind, type) and "__init__" in vars(kind) and "pad_to_multiple_of" in getattr(kind, "__dataclass_fields__", ()):
                _after(kind, "__init__", made)

    def _lightning(self, it: Any, *_: Any, **given: Any) -> None:
        values = {"accumulate_grad_batches": it.accumulate_grad_batches, "precision": str(it.precision)}
        rest = sorted((name, value) for name, value in given.items() if name not in values and isinstance(value, _PLAIN))
        self._seen.append(self._saw("lightning", "Trainer", values, rest))

    def _accelerate(self, module: Library) -> None:
        def made(it: Any, *_: Any, **__: Any) -> None:
            values = {"gradient_accumulation_steps": it.gradient_accumulation_steps, "mixed_precision": str(it.mixed_precision)}
            self._seen.append(self._saw("accelerate", "Accelerator", values, ()))

        def accumulates(*_: Any, **__: Any) -> None:
            self._accumulates = True

        _after(module.Accelerator, "__init__", made)
        _after(module.Accelerator, "accumulate", accumulates)

    def _generates(self, it: Any, *_: Any, **given: Any) -> None:
        config = given.get("generation_config") or getattr(it, "generation_config", None)
        chosen = given.get("cache_implementation") or getattr(config, "cache_implementation", None)
        uses = given.get("use_cache", getattr(config, "use_cache", True))
        if not any(known["what"] == "generate" for known in self._seen):
            values = {"cache_implementation": chosen, "use_cache": uses is not False}
            self._seen.append(self._saw("generate", "generate", values, ()))

    def _loading(self, module: Library) -> None:
        load = vars(module.PreTrainedModel)["from_pretrained"].__func__

        @guarded
        def look(model: Any, given: Any) -> None:
            quantizer = getattr(model[0] if isinstance(model, tuple) else model, "hf_quantizer", None)
            in_4_bits = bool(getattr(getattr(quantizer, "quantization_config", None), "load_in_4bit", False))
            values = {"load_in_4bit": in_4_bits, "quantized_otherwise": quantizer is not None and not in_4_bits}
            rest = sorted((name, value) for name, value in given.items() if isinstance(value, _PLAIN))
            self._seen.append(self._saw("loading", "from_pretrained", values, rest))

        @functools.wraps(load)
        def from_pretrained(cls: Any, *args: Any, **given: Any) -> Any:
            model = load(cls, *args, **given)
            look(model, given)
            return model

        patch.put(module.PreTrainedModel, "from_pretrained", from_pretrained)

    def _adapters(self, it: Any) -> None:
        fields = ((field.name, getattr(it, field.name, None)) for field in dataclasses.fields(it))
        rest = sorted((name, value) for name, value in fields if name not in ("r", "target_modules") and isinstance(value, _PLAIN))
        self._seen.append(self._saw("adapters", "LoraConfig", {"r": it.r, "targets": None, "attention": None}, rest))

    def _adapted(self, it: Any, *_: Any, **__: Any) -> None:
        """Which modules got adapters, by the last part of their names; and which of these are those of attention, where a name tells that."""
        names: dict[bool, set[str]] = {True: set(), False: set()}
        for full in it.targeted_module_names:
            owner, _dot, name = full.rpartition(".")
            names["attention" in type(it.model.get_submodule(owner)).__name__.lower()].add(name)
        of_attention = names[True] - names[False]
        configs = [known for known in self._seen if known["what"] == "adapters"]
        for known in configs[-1:]:
            known["values"].update(targets=", ".join(sorted(names[True] | names[False])), attention=", ".join(sorted(of_attention)))

    def _read(self, file: Any, *_: Any, **__: Any) -> None:
        """DeepSpeed, what is around it and scripts read its configuration with this."""
        name = getattr(file, "name", None)
        if not isinstance(name, str) or not name.endswith(".json") or source.MOST_BYTES < os.path.getsize(name):
            return
        with open(name, encoding="utf-8") as text:
            if '"zero_optimization"' in text.read():
                self._config = os.path.abspath(name)

    def _deepspeed(self, it: Any, *_: Any, **__: Any) -> None:
        if any(known["what"] == "deepspeed" for known in self._seen):
            return
        zero, given = it.zero_config, dict(it._param_dict)
        values: Named = {name: int(getattr(zero, attribute)) for name, attribute in OF_ZERO.items()}
        values["stage"] = int(zero.stage)
        for name in ("offload_optimizer", "offload_param"):
            device = getattr(getattr(zero, name), "device", None)
            values[name] = getattr(device, "value", device) or "none"
        rest = [given, sorted((name, repr(value)) for name, value in given.pop("zero_optimization", {}).items() if name not in values)]
        values["world"] = int(it.world_size)
        name = os.path.basename(self._config or "config")
        self._seen.append(self._saw("deepspeed", name, values, rest, config=self._config))

    def _diffusers(self, module: Library) -> None:
        placed = {}

        def moved(pipe: Any, *_: Any, **__: Any) -> None:
            placed[id(pipe)] = self._saw("pipeline", "to", {}, ())

        def made(pipe: Any) -> None:
            """Every pipeline ends its pictures with this."""
            parts = [getattr(it, "__class__", None) for it in getattr(getattr(pipe, "unet", None), "attn_processors", {}).values()]
            vae = getattr(pipe, "vae", None)
            values = {
                "vae.enable_slicing": bool(getattr(vae, "use_slicing", False)),
                "vae.enable_tiling": bool(getattr(vae, "use_tiling", False)),
                "enable_attention_slicing": any("Sliced" in it.__name__ for it in parts if it is not None),
                "enable_model_cpu_offload": bool(getattr(pipe, "_all_hooks", ())),
            }
            if not any(known["what"] == "pipeline" for known in self._seen):
                self._seen.append(self._saw("pipeline", None, values, (), at=placed.get(id(pipe))))

        _after(module.DiffusionPipeline, "to", moved)
        _after(module.DiffusionPipeline, "maybe_free_model_hooks", made)

    def _loader(self, it: Any, *_: Any, **__: Any) -> None:
        # Who wraps a loader makes another one of the same data.
        if isinstance(it.batch_size, int) and not any(known["dataset"] == id(it.dataset) for known in self._loaders):
            values = {"batch_size": it.batch_size}
            self._loaders.append(self._saw("loader", "DataLoader", values, (), dataset=id(it.dataset), trains=False))

    def _next(self, iterator: Any) -> None:
        self._dataset = id(iterator._dataset)


def _reads_the_command(frame: FrameType) -> bool:
    """Whether transformers' parser is given the words of the command in it: not a file, not a list of the script's own, to which
    words that are added to the command would not be added."""
    if frame.f_code.co_name != "parse_args_into_dataclasses":
        return False
    words, given = sys.argv[1:], frame.f_locals.get("args")
    return given is None or list(given)[-len(words) :] == words if words else not given


def _configuration(it: Any) -> Any:
    """Where DeepSpeed's configuration is written down: the file that it was read from, else the one dictionary with its key in the script."""
    site = {"what": "config", "file": it["config"] or it["file"], "statement": [1, 0, 1, 0], "function": 0}
    if it["config"] is not None:
        return site
    if it["file"] is None:
        return None
    has_key = [
        node
        for node in ast.walk(source.tree(it["file"]))
        if isinstance(node, ast.Dict) and any(isinstance(key, ast.Constant) and key.value == "zero_optimization" for key in node.keys)
    ]
    if len(has_key) != 1:
        return None
    node = has_key[0]
    return dict(site, statement=[node.lineno, node.col_offset, node.end_lineno, node.end_col_offset])


def span_of(frame: FrameType) -> list[Any] | None:
    """Of the call that a frame is in, first and last line and byte; None before Python 3.11, which does not know it."""
    if not hasattr(frame.f_code, "co_positions"):
        return None
    first, last, begin, end = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    return [first, begin, last, end]


def _after(owner: Any, name: str, look: Function) -> None:
    """`look` sees each call of it, once it is over, and what it was given."""
    original = getattr(owner, name)
    look = guarded(look)

    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        look(*args, **kwargs)
        return result

    patch.put(owner, name, call)
