"""`DistributedDataParallel` keeps each gradient once, as a view of the bucket that it is sent in.

Saves one copy of the gradients. The numbers are the same. Not for scripts that call `detach_()` on gradients.
"""

import functools


def apply(torch, parameters, hooks, note):
    from torch.nn.parallel import DistributedDataParallel

    make = DistributedDataParallel.__init__

    @functools.wraps(make)
    def __init__(self, *args, **kwargs):
        kwargs["gradient_as_bucket_view"] = True
        make(self, *args, **kwargs)

    DistributedDataParallel.__init__ = __init__
