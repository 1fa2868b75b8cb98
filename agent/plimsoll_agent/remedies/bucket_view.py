"""`DistributedDataParallel` keeps each gradient once, as a view of the bucket that it is sent in.

Saves one copy of the gradients. The numbers are the same. Not for scripts that call `detach_()` on gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Named, Note, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    from torch.nn.parallel import DistributedDataParallel

    make = DistributedDataParallel.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs["gradient_as_bucket_view"] = True
        make(self, *args, **kwargs)

    patch.put(DistributedDataParallel, "__init__", __init__)
