"""Asks the CUDA driver for memory, and says where it lies. No PyTorch; needs a GPU.

    gcc -O1 -shared -fPIC -o watch.so bench/instruments/addresses_watch.c -ldl
    WATCH_OUT=order.log LD_PRELOAD=$PWD/watch.so python3 bench/instruments/addresses_driver.py order
    python3 bench/instruments/addresses_rule.py order.log

`order` takes sizes as PyTorch asks for them, frees all and takes them again; a number is the seed of 400 calls at random, a
third of them frees; `libraries` and a number makes 1,500 calls of up to 10 GiB, which use up the card, after PyTorch has used
cuBLAS, cuDNN and cuFFT in this process. `watch.so` notes what the driver then asks of the kernel; it can be loaded into a training
script, too.
"""

import ctypes
import random
import sys

if sys.argv[1:] in ([], ["--help"]):
    sys.exit(__doc__)
MIB = 1 << 20
OUT_OF_MEMORY = 2
SIZES = (20, 2, 2, 36, 20, 32, 2, 2, 2, 20, 50, 48, 48, 48, 50, 2, 2, 212, 24, 296, 24)

cuda = ctypes.CDLL("libcuda.so.1")


def check(status):
    if status:
        sys.exit("the driver answered %d" % status)


def take(size, may_fail=False):
    at = ctypes.c_uint64()
    status = cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size))
    if may_fail and status == OUT_OF_MEMORY:
        return None
    check(status)
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


def use_libraries():
    import torch

    x = torch.randn(8, 3, 512, 512, device="cuda", requires_grad=True)
    y = torch.nn.functional.conv2d(x, torch.randn(64, 3, 3, 3, device="cuda"))
    (torch.fft.rfft2(x.detach()).real.mean() + (y.flatten(1)[:, :512] @ torch.randn(512, 512, device="cuda")).mean()).backward()
    torch.cuda.synchronize()


def until_full(seed):
    chosen, held, refused = random.Random(seed), [], 0
    for _ in range(1500):
        if held and chosen.random() < (0.35 if refused < 3 else 0.5):
            free(held.pop(chosen.randrange(len(held))))
            continue
        kind = chosen.random()
        granules = 1 if kind < 0.3 else 10 if kind < 0.7 else chosen.randrange(11, 300) if kind < 0.9 else chosen.randrange(300, 5120)
        at = take(2 * MIB * granules, may_fail=True)
        if at is None:
            refused += 1
        else:
            held.append(at)
    print("refused", refused)


def main():
    if sys.argv[1] == "libraries":
        use_libraries()
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cuda.cuCtxSetCurrent(context))
    if sys.argv[1] == "libraries":
        until_full(int(sys.argv[2]))
        return
    if sys.argv[1] != "order":
        at_random(int(sys.argv[1]))
        return
    for at in [take(size * MIB) for size in SIZES]:
        free(at)
    for size in SIZES:
        take(size * MIB)


main()
