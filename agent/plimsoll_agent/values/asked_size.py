"""Records that a program asked for the size of the card: its memory on this card then does not predict its memory on another.

PyTorch asks, too, in C++ (when memory runs out) and in Python (`nn.DataParallel` compares the devices); these calls do not
count. The phantom handles NVML, which `nvidia-smi` and pynvml use.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run import frames
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from types import FrameType

    from plimsoll_agent.kinds import Torch
    from plimsoll_agent.run.recording import Recording

MOST = 5
"""So many places are named."""


def _warms_up(frame: FrameType) -> bool:
    """Whether `from_pretrained` asks, to reserve memory for the weights at once. Where they fit, it reserves the same on every card."""
    code = frame.f_code
    return code.co_name == "caching_allocator_warmup" and code.co_filename.endswith(os.path.join("transformers", "modeling_utils.py"))


class AskedSize:
    """Who asked in this process."""

    def __init__(self, torch: Torch, recording: Recording) -> None:
        self._torch = torch
        self._recording = recording
        self._seen: set[Any] = set()
        self._of_torch = os.path.dirname(torch.__file__) + os.sep

    def install(self) -> None:
        """Takes its places: two functions, and an attribute of what `get_device_properties` returns."""
        torch = self._torch
        self._wrap((torch.cuda.memory, torch.cuda), "mem_get_info", "torch.cuda.mem_get_info")
        accelerator = getattr(torch, "accelerator", None)
        modules = [it for it in (getattr(accelerator, "memory", None), accelerator) if it is not None]
        self._wrap(modules, "get_memory_info", "torch.accelerator.get_memory_info")
        properties: Any = getattr(torch._C, "_CudaDeviceProperties", None)
        real: Any = getattr(properties, "total_memory", None)
        if isinstance(real, property) and real.fget is not None:
            get = real.fget

            def total_memory(props: Any) -> Any:
                self._asked("total_memory", sys._getframe(1))
                return get(props)

            patch.put(properties, "total_memory", property(total_memory, doc=real.__doc__))

    def _wrap(self, modules: Any, name: str, called: Any) -> None:
        """The function `name` of the first of `modules`, which the others have from it."""
        real = getattr(modules[0], name, None) if modules else None
        if real is None:
            return

        def call(*args: Any, **kwargs: Any) -> Any:
            self._asked(called, sys._getframe(1))
            return real(*args, **kwargs)

        for module in modules:
            if getattr(module, name, None) is real:
                patch.put(module, name, call)

    @guarded
    def _asked(self, called: Any, frame: FrameType) -> None:
        asker = frame.f_code.co_filename
        if frames.is_ours(asker) or asker.startswith(self._of_torch) or _warms_up(frame):
            return
        if frame.f_code.co_name == "get_max_memory":  # Accelerate's and transformers'.
            called += ' for device_map="auto"'
        at: FrameType | None = frame
        while at is not None and not frames.is_users(at.f_code.co_filename):
            at = at.f_back
        at = at or frame
        place = (called, at.f_code.co_filename, at.f_lineno)
        if place in self._seen or len(self._seen) == MOST:
            return
        self._seen.add(place)
        line = frames.with_text({"file": place[1], "line": place[2], "function": at.f_code.co_name})
        self._recording.write("asked_size", call=called, **line)
