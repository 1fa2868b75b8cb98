"""Windows that overlap: `unfold` gives each value once for each window that has it. `Tensor.unfold` gives a view, which costs nothing until something
is computed with it; `torch.nn.functional.unfold` writes the copies at once.

What is written down is how large all windows are: whatever has that size is made of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Function, Torch
    from plimsoll_agent.run.recording import Recording

LEAST_BYTES = 1 << 20
LEAST_COPIES = 2
MOST_LINES = 64


class Unfolded:
    """The sizes of windows that overlap."""

    def __init__(self, torch: Torch, recording: Recording) -> None:
        self._torch, self._recording = torch, recording
        self._written: set[tuple[int, int]] = set()

    def install(self) -> None:
        """Takes its places in PyTorch."""
        patch.replace(self._torch.Tensor, "unfold", self._seen)
        patch.replace(self._torch.nn.functional, "unfold", self._seen)

    def _seen(self, unfold: Function) -> Function:
        is_compiling = self._torch.compiler.is_compiling

        def instead(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():  # A compiler follows every line of ours.
                return unfold(*args, **kwargs)
            res = unfold(*args, **kwargs)
            self._look(args[0] if args else kwargs.get("input"), res)
            return res

        return instead

    @guarded
    def _look(self, given: Any, res: Any) -> None:
        # A compiler's tensors have no storage, and sizes that are no numbers.
        if type(res) is not self._torch.Tensor or type(res.numel()) is not int or MOST_LINES <= len(self._written):
            return
        is_view = res.data_ptr() == given.data_ptr()
        values = 1 + sum((size - 1) * stride for size, stride in zip(res.shape, res.stride())) if is_view else given.numel()
        size, copies = res.numel() * res.element_size(), round(res.numel() / max(values, 1))
        if copies < LEAST_COPIES or size < LEAST_BYTES or (size, copies) in self._written:
            return
        self._written.add((size, copies))
        self._recording.write("unfolded", copies=copies, bytes=size)
