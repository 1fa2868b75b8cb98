"""What each block of a model keeps, how high memory rises in it, and what it computes.

On in runs that are made for it (`checkpoint` with `measure`): in the second step PyTorch's counters are read where
the forward pass enters and leaves a block and where backward comes to it; in the third the operations inside are
counted. What is read is written as it is; what follows from it is the reader's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent.run import nested
from plimsoll_agent.run.meter import Meter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plimsoll_agent.kinds import Arguments, Function, Module, Named, Tensor, Torch
    from plimsoll_agent.run.recording import Recording


class BlockCosts:
    """Watches the blocks of one model in its second and third step."""

    def __init__(self, torch: Torch, recording: Recording) -> None:
        self._torch = torch
        self._recording = recording
        self._steps = 0
        self._device: Any = None
        self._readings: list[Any] = []
        self._work: dict[int, Work] = {}
        self._counting: Meter | None = None
        from torch.optim import optimizer

        optimizer.register_optimizer_step_pre_hook(lambda *_: self._read("end", 0))
        optimizer.register_optimizer_step_post_hook(lambda *_: self._stepped())

    def watch(self, blocks: list[tuple[str, Module]]) -> None:
        """`blocks` as `(name, module)`, by their number."""
        for number, (_, block) in enumerate(blocks):
            block.register_forward_pre_hook(self._before(number))
            block.register_forward_hook(self._after(number))

    def _before(self, number: int) -> Function:
        def enter(module: Module, args: Arguments) -> None:
            if self._device is None:
                device = next(module.parameters()).device
                self._device = device if device.type == "cuda" else None
            if not self._torch.is_grad_enabled():
                return
            self._read("enter", number)
            if self._steps == 2 and number not in self._work:
                self._work[number] = Work()
                self._counting = Meter(self._torch, self._work[number])
                self._counting.step_ended(1)

        return enter

    def _after(self, number: int) -> Function:
        def leave(module: Module, args: Arguments, output: Any) -> None:
            if self._counting is not None:
                self._counting.step_ended(2)
                self._counting = None
            if not self._torch.is_grad_enabled():
                return
            self._read("leave", number)
            if self._steps == 1:
                for tensor in nested.tensors_in(self._torch, output):
                    if tensor.requires_grad:
                        tensor.register_hook(self._back(number))

        return leave

    def _back(self, number: int) -> Function:
        arrived: list[Any] = []

        def back(gradient: Tensor) -> None:
            if not arrived:  # A block with several outputs is entered once.
                arrived.append(True)
                self._read("back", number)

        return back

    def _read(self, what: str, number: int) -> None:
        if self._steps != 1 or self._device is None:
            return
        c, index = self._torch._C, self._device.index or 0
        stats = c._cuda_memoryStats(index)["allocated_bytes"]["all"]
        self._readings.append([what, number, stats["current"], stats["peak"]])
        c._cuda_resetPeakMemoryStats(index)

    def _stepped(self) -> None:
        self._steps += 1
        if self._steps == 2 and self._readings:
            self._recording.write("block-memory", readings=self._readings)
        if self._steps == 3 and self._work:
            count = max(self._work) + 1
            work: list[Sequence[Named]] = [self._work[it].operations if it in self._work else [] for it in range(count)]
            self._recording.write("block-work", blocks=work)


class Work:
    """What a meter writes of one block, instead of a recording."""

    operations: Sequence[Named] = ()

    def write(self, kind: str, **fields: Any) -> None:
        self.operations = fields["ops"]
