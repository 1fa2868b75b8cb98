"""The multiprocessors of each cluster as cuDNN has them on this machine's GPU: the `gpcs` of a card.

    python bench/instruments/cudnn_clusters.py

Needs a GPU that has clusters, and cuDNN 9.19: the list is read from the handle, at `Layout::skylines` of
crates/phantom/src/border/dnn.rs. Behind it stands for how many clusters of 1, 2, ... 16 multiprocessors there is room at once.
"""

import ctypes
import sys

import torch

if "--help" in sys.argv:
    sys.exit(__doc__)
SKYLINE, NAME = 0x70, 0x110

torch.nn.functional.conv2d(torch.zeros(1, 1, 8, 8, device="cuda"), torch.zeros(1, 1, 3, 3, device="cuda"))
assert torch.backends.cudnn.version() == 91900, "another cuDNN lays its handle out in another way"
handle = ctypes.c_void_p()
assert ctypes.CDLL("libcudnn.so.9").cudnnCreate(ctypes.byref(handle)) == 0
numbers = list((ctypes.c_int * ((NAME - SKYLINE) // 4)).from_address(handle.value + SKYLINE))
print(torch.cuda.get_device_name(), [it for it in numbers[:24] if it], "room:", numbers[24:])
