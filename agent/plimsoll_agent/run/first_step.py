"""Records the memory of the first training step: on the phantom it goes into the plan, on the GPU plimsoll compares it with the plan.

One line for each device that was used. The agent asks the driver once and waits for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Torch
    from plimsoll_agent.run.memory import Memory
    from plimsoll_agent.run.recording import Recording


def write(torch: Torch, memory: Memory, recording: Recording, inputs: list[str]) -> None:
    """`inputs` are those of the first forward pass, as text."""
    place = memory.place()
    for device, (allocated, reserved) in enumerate(place.peaks):
        if reserved == 0:
            continue
        free, total = torch.cuda.mem_get_info(device)
        recording.write(
            "first_step",
            device=device,
            peak_allocated=allocated,
            peak_reserved=reserved,
            reserved=place.reserved[device],
            device_free=free,
            device_total=total,
            gpu=memory.name(device),
            torch=torch.__version__,
            inputs=inputs,
            retries=torch._C._cuda_memoryStats(device)["num_alloc_retries"],
        )
