"""transformers' `generate` for some of its prompts at a time: its key-value cache is then of some of them only."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.remedies.support import split
from plimsoll_agent.remedies.support.rerun import is_cache
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.host_random import HostRandom
from plimsoll_agent.run.refusal import trying, unsuited

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Module, Named, Torch
    from plimsoll_agent.run.recording import Recording


def generate_in_parts(torch: Torch, parts: int, recording: Recording) -> None:
    """From now on `generate` goes through so many parts of its prompts, one after the other."""
    after_import("transformers.generation.utils", lambda module: _wrap(torch, module.GenerationMixin, parts, recording))


def _remembers(kwargs: Named) -> bool:
    """Whether something goes from one prompt to the next: a cache of the script's, or a function that sees each token."""
    seen = any(kwargs.get(it) is not None for it in ("stopping_criteria", "logits_processor", "streamer"))
    return seen or any(map(is_cache, kwargs.values()))


def _wrap(torch: Torch, mixin: type[Any], parts: int, recording: Recording) -> None:
    original, thread = mixin.generate, threading.local()

    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        whole = split.batch_size(torch, args, kwargs)
        if getattr(thread, "inside", False) or whole is None or whole < 2 or parts < 2 or _remembers(kwargs):
            return original(self, *args, **kwargs)
        told = _Told(self, kwargs)
        recording.write("split", samples=whole, loss=False, exact=not told("do_sample"))
        thread.inside, outputs, choices = True, [], HostRandom()
        try:
            for start, end in split.bounds_of(whole, min(parts, whole)):
                choices.again()
                part_args, part_kwargs = split.part_of(torch, args, kwargs, whole, start, end)
                with trying(torch, "micro-batches", "%s: it does not generate from a part of its prompts" % type(self).__name__):
                    outputs.append(original(self, *part_args, **part_kwargs))
        finally:
            thread.inside = False
        if not all(isinstance(it, torch.Tensor) and it.dim() == 2 for it in outputs):
            raise unsuited("micro-batches", "this script: it asks generate for more than tokens, and plimsoll can join micro-batches of tokens only")
        pad = told("pad_token_id")
        end = told("eos_token_id") if pad is None else pad
        return _as_long(torch, outputs, end[0] if isinstance(end, (list, tuple)) else end or 0)

    patch.put(mixin, "generate", generate)


class _Told:
    """The value of a setting in a call of `generate`, or else in the model's configuration."""

    def __init__(self, model: Module, kwargs: Named) -> None:
        config = kwargs.get("generation_config") or getattr(model, "generation_config", None)
        self._places = [kwargs, getattr(config, "__dict__", {})]

    def __call__(self, name: str) -> Any:
        return next((it[name] for it in self._places if it.get(name) is not None), None)


def _as_long(torch: Torch, outputs: Any, filler: Any) -> Any:
    """All parts in one, as long as the longest."""
    longest = max(it.size(1) for it in outputs)
    pad = torch.nn.functional.pad
    return torch.cat([pad(it, (0, longest - it.size(1)), value=int(filler)) for it in outputs])
