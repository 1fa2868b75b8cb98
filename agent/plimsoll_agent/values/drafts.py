"""How many drafted tokens a serving engine accepts.

A small model, or a rule, drafts some tokens ahead of the engine's model, which accepts those that it might have drawn itself. It decides so by numbers that
nobody computes, and counts on the device what each request got: read as zero, no request would ever get a token. None is accepted, and each pass gives
each request one token, as the least that it gives on a card.

vLLM's second model runner. Its first one counts the tokens themselves, and accepts all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.guard import guarded
from plimsoll_agent.values import phantom

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Function, Tensor


def install() -> None:
    """Takes its place in vLLM once that is imported."""
    after_import("vllm.v1.worker.gpu.spec_decode.rejection_sampler", lambda module: patch.replace(module, "rejection_sample", _accepting_none))


def _accepting_none(real: Function) -> Function:
    @guarded
    def one_each(got: Tensor) -> None:
        phantom.set_bytes(got, (1).to_bytes(got.element_size(), "little") * got.numel())

    def rejection_sample(*args: Any, **kwargs: Any) -> Any:
        sampled, got = real(*args, **kwargs)
        one_each(got)
        return sampled, got

    return rejection_sample
