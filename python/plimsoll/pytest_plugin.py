"""A fixture for tests that hold a training to a budget of GPU memory. pytest finds it by itself.

    def test_training_fits(gpu_memory_budget):
        gpu_memory_budget("20GiB").predict(train, batch_size=8)         # on the phantom: no GPU needed

    def test_step_fits(gpu_memory_budget):
        with gpu_memory_budget("2GiB"):                                  # on the GPU of this very process
            step()
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pytest

from plimsoll._predict import predict
from plimsoll._results import Prediction
from plimsoll._sizes import Size


class Budget:
    """A size, and two ways to hold something to it."""

    def __init__(self, size: str | int) -> None:
        """Use the fixture, which makes these."""
        self.size = Size(size)

    def predict(
        self,
        function: Callable[..., Any],
        *args: Any,
        gpu: str | None = None,
        writes: str | None = None,
        **kwargs: Any,
    ) -> Prediction:
        """Runs `function(*args, **kwargs)` on the phantom, and fails the test if it needs more than the budget.

        What counts is the process's memory on the device, CUDA context and allowance included (`Prediction.safe`).
        """
        __tracebackhide__ = True
        answer = predict(function, *args, gpu=gpu, writes=writes, **kwargs)
        if answer.out_of_memory is not None or answer.safe is None:
            pytest.fail(str(answer), pytrace=False)
        if self.size < answer.safe:
            most = "".join(f"\n  {line}" for line in answer.lines[:5])
            pytest.fail(
                f"the budget is {self.size}; on {answer.gpu_name} this needs {answer.peak}, request {answer.safe} to be safe. "
                f"The largest lines at the peak:{most}",
                pytrace=False,
            )
        return answer

    def __enter__(self) -> Budget:
        torch = _torch()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        __tracebackhide__ = True
        if error is not None:
            return
        reserved = Size(_torch().cuda.max_memory_reserved())
        if self.size < reserved:
            pytest.fail(f"the budget is {self.size}; PyTorch's allocator reserved {reserved}", pytrace=False)


def _torch() -> Any:
    torch: Any = sys.modules.get("torch") or pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this machine has no GPU to measure on; gpu_memory_budget(...).predict(function) needs none")
    return torch


@pytest.fixture
def gpu_memory_budget() -> Callable[[str | int], Budget]:
    """`gpu_memory_budget("20GiB")`: a budget that a training is held to."""
    return Budget
