"""Programs that call NVIDIA's libraries through `ctypes`, as serving engines do between the ranks of one model."""

SCRIPT = """
import ctypes, glob, os
import torch

torch.zeros(1, device="cuda")
nccl = ctypes.CDLL("libnccl.so.2")
communicator, id = ctypes.c_void_p(), (ctypes.c_byte * 128)()

class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]

nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, Id, ctypes.c_int]
made = nccl.ncclCommInitRank(ctypes.byref(communicator), 2, Id(), 0)
with open("/proc/self/maps") as f:
    runtime = next(line.split()[-1] for line in f if "libcudart" in line)
address, before = ctypes.c_void_p(), torch.cuda.mem_get_info()[0]
cuda = ctypes.CDLL(runtime)
gave = cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(64 << 20))
texts = cuda.cudaGetErrorString, cuda.cudaGetErrorName
for it in texts:
    it.restype = ctypes.c_char_p
print([made, gave, bool(communicator), bool(address), before - torch.cuda.mem_get_info()[0]], [it(2).decode() for it in texts])
"""


def test_nccl_and_the_runtime_are_the_phantoms(plimsoll):
    plimsoll.script(SCRIPT, "train.py")
    ran = plimsoll.predict("train.py", options=("--gpu", "l4", "--until-exit"))
    assert "[0, 0, True, True, %d] ['out of memory', 'cudaErrorMemoryAllocation']" % (64 << 20) in ran.stdout, ran
