"""Meshes of devices: PyTorch lists all ranks of a mesh each time that it makes a part of one, and FSDP makes one for each parameter.

With a thousand ranks and some hundred parameters that takes longer than a step. Whether ranks overlap follows from the sizes and
strides of the mesh alone, so it is looked at once for each of these.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from plimsoll_agent import patch

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Library

MODULE = "torch.distributed._mesh_layout"


def wrap(module: Library) -> None:
    """Takes its place in `module`, which is `MODULE`."""
    layout = module._MeshLayout
    # Values compare by sizes and strides, and do not change.
    if hasattr(layout, "check_non_overlap") and layout.__hash__ is not None:
        patch.replace(layout, "check_non_overlap", functools.lru_cache(maxsize=None))
