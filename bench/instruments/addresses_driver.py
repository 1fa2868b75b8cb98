"""Asks the CUDA driver for memory, and says where it lies. No PyTorch; needs a GPU.

    gcc -O1 -shared -fPIC -o watch.so bench/instruments/addresses_watch.c -ldl
    WATCH_OUT=order.log LD_PRELOAD=$PWD/watch.so python3 bench/instruments/addresses_driver.py order
    python3 bench/instruments/addresses_rule.py order.log

`order` takes sizes as PyTorch asks for them, frees all and takes them again; a number is the seed of 400 calls at random, a
third of them frees. `watch.so` notes what the driver then asks of the kernel; it can be loaded into a training
script, too.
"""

import ctypes
import random
import sys

if sys.argv[1:] in ([], ["--help"]):
    sys.exit(__doc__)
MIB = 1 << 20
SIZES = (20, 2, 2, 36, 20, 32, 2, 2, 2, 20, 50, 48, 48, 48, 50, 2, 2, 212, 24, 296, 24)

cuda = ctypes.CDLL("libcuda.so.1")


def check(status):
    if status:
        sys.exit("the driver answered %d" % status)


def take(size):
    at = ctypes.c_uint64()
    check(cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)))
    print("take", size // MIB, hex(at.value))
    return at.value


def free(at):
    check(cuda.cuMemFree_v2(ctypes.c_uint64(at)))
    print("free", hex(at))


def at_random(seed):
    chosen, held = random.Random(seed), set()
    for _ in range(400):
        if held and chosen.random() < 0.35:
            at = chosen.choice(sorted(held))
            held.remove(at)
            free(at)
            continue
        kind = chosen.random()
        if kind < 0.7:
            granules = 1 if kind < 0.4 else 10
        else:
            granules = chosen.randrange(6, 64) if kind < 0.95 else chosen.randrange(64, 600)
        held.add(take(2 * MIB * granules))


def main():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cuda.cuCtxSetCurrent(context))
    if sys.argv[1] != "order":
        at_random(int(sys.argv[1]))
        return
    for at in [take(size * MIB) for size in SIZES]:
        free(at)
    for size in SIZES:
        take(size * MIB)


main()
