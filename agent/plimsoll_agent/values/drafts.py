"""How many drafted tokens a serving engine accepts.

A small model, or a rule, drafts some tokens ahead of the engine's model, which accepts those that it might have drawn itself. It decides so by numbers that
nobody computes: read as they are, no request would ever get a token. Each pass gives each request one token, as the least that it gives on a card.

vLLM's second model runner counts on the device what each request got. Its first one fills a table with what is no token, and its kernel writes the tokens into
it, which nobody computes where requests are not greedy.
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
    after_import("vllm.v1.sample.rejection_sampler", lambda module: patch.replace(module, "rejection_sample", _with_a_token))


def _accepting_none(real: Function) -> Function:
    @guarded
    def one_each(got: Tensor) -> None:
        phantom.set_bytes(got, (1).to_bytes(got.element_size(), "little") * got.numel())

    def rejection_sample(*args: Any, **kwargs: Any) -> Any:
        sampled, got = real(*args, **kwargs)
        one_each(got)
        return sampled, got

    return rejection_sample


def _with_a_token(real: Function) -> Function:
    @guarded
    def one_each(tokens: Tensor, drafts: Tensor, n_drafts: list[int]) -> None:
        start = 0
        for row, n in zip(tokens, n_drafts):
            first = row[:1]
            if phantom.bytes_of(first) == b"\xff" * first.element_size():
                draft = phantom.bytes_of(drafts[start : start + 1]) if n else None
                phantom.set_bytes(first, draft or bytes(first.element_size()))
            start += n

    def rejection_sample(draft_token_ids: Tensor, num_draft_tokens: list[int], *args: Any, **kwargs: Any) -> Any:
        tokens = real(draft_token_ids, num_draft_tokens, *args, **kwargs)
        one_each(tokens, draft_token_ids, num_draft_tokens)
        return tokens

    return rejection_sample
