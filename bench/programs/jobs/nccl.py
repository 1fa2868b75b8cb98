"""What NCCL itself takes on the device, step by step."""

import ctypes
import os

import torch
import torch.distributed as dist

from jobs import KINDS, kind


class Notes:
    """What the driver counts for this process, less what PyTorch's allocator holds, after each of these."""

    def __init__(self):
        self.facts = []
        self.cpu = dist.new_group(backend="gloo")

    def __call__(self, what):
        torch.cuda.synchronize()
        dist.barrier(self.cpu)
        free, total = torch.cuda.mem_get_info()
        own = process_bytes(torch.cuda.current_device())
        self.facts.append([what, total - free - torch.cuda.memory_reserved(), own and own - torch.cuda.memory_reserved()])
        dist.barrier(self.cpu)


def first_and_again(note, what, run):
    run()
    note(what)
    run()
    note(what + " again")


@kind
def nccl(local):
    note, world, rank = Notes(), dist.get_world_size(), dist.get_rank()
    x = torch.zeros(1 << 22, device="cuda")
    note("context and one tensor")
    first_and_again(note, "all_reduce", lambda: dist.all_reduce(x))
    dist.all_gather_into_tensor(torch.empty(x.numel() * world, device="cuda"), x)
    note("all_gather")
    dist.reduce_scatter_tensor(x[: x.numel() // world], x)
    note("reduce_scatter")
    dist.broadcast(x, 0)
    note("broadcast")
    dist.all_to_all_single(torch.empty_like(x), x)
    note("all_to_all")
    send_or_receive(x, rank, world)
    note("send and recv")
    for number in (2, 3, 4):
        group = dist.new_group()
        dist.all_reduce(x, group=group)
        note(f"communicator {number}")
        dist.all_gather_into_tensor(torch.empty(x.numel() * world, device="cuda"), x, group=group)
        note(f"communicator {number}, all_gather")
    return note.facts


@kind
def nccl_of_one(local):
    """Groups of one rank, as meshes make them: by a split of everyone's, and by themselves."""
    note, rank = Notes(), dist.get_rank()
    x = torch.zeros(1 << 22, device="cuda")
    dist.all_reduce(x)
    note("everyone's, used")
    alone = dist.split_group(split_ranks=[[it] for it in range(dist.get_world_size())])
    note("split into ones")
    first_and_again(note, "all_reduce of one", lambda: dist.all_reduce(x, group=alone))
    first_and_again(note, "all_gather of one", lambda: dist.all_gather_into_tensor(torch.empty_like(x), x, group=alone))
    dist.all_to_all_single(torch.empty_like(x), x, group=alone)
    note("all_to_all of one")
    new = dist.new_group([rank], use_local_synchronization=True)
    note("a new one")
    dist.all_reduce(x, group=new)
    note("a new one, used")
    shape = (1, dist.get_world_size())
    both = dist.device_mesh.init_device_mesh("cuda", shape, mesh_dim_names=("data", "tensor"))
    note("a mesh of one by all")
    dist.all_reduce(x, group=both["data"].get_group())
    note("its one, used")
    dist.all_reduce(x, group=both["tensor"].get_group())
    note("its all, used")
    return note.facts


def send_or_receive(x, rank, world):
    if rank == 0:
        dist.send(x, 1)
    elif rank == 1:
        dist.recv(x, 0)


def nccl_alone(run):
    def only(local):
        note = Notes()
        x = torch.zeros(1 << 22, device="cuda")
        note("context and one tensor")
        first_and_again(note, "first", lambda: run(x))
        group = dist.new_group()
        note("a group, not used")
        dist.all_reduce(x, group=group)
        note("all_reduce in the group")
        run(x, group=group)
        note("the same in the group")
        return note.facts

    return only


ALONE = {
    "all-reduce": dist.all_reduce,
    "all-to-all": lambda x, **group: dist.all_to_all_single(torch.empty_like(x), x, **group),
    "send": lambda x, **group: dist.send(x, 1, **group) if dist.get_rank() == 0 else dist.recv(x, 0, **group),
    "exchange": lambda x, **group: [it.wait() for it in dist.batch_isend_irecv([
        dist.P2POp(dist.isend, x, 1 - dist.get_rank(), **group), dist.P2POp(dist.irecv, torch.empty_like(x), 1 - dist.get_rank(), **group)])],
    "broadcast": lambda x, **group: dist.broadcast(x, 0, **group),
    "all-gather": lambda x, **group: dist.all_gather_into_tensor(torch.empty(2 * x.numel(), device="cuda"), x, **group),
    "reduce-scatter": lambda x, **group: dist.reduce_scatter_tensor(x[: x.numel() // 2], x, **group),
    "tiny": lambda x, **group: dist.all_reduce(x[:1], **group),
}
KINDS |= {f"nccl-{name}": (nccl_alone(run), "ours") for name, run in ALONE.items()}


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu", ctypes.c_uint), ("compute", ctypes.c_uint)]


def process_bytes(device):
    """What NVML says that this process has on the device; `None` where it does not say."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        nvml.nvmlInit_v2()
        handle, count, rows = ctypes.c_void_p(), ctypes.c_uint(64), (Process * 64)()
        nvml.nvmlDeviceGetHandleByIndex_v2(device, ctypes.byref(handle))
        if nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), rows):
            return None
        return next((it.used for it in rows[: count.value] if it.pid == os.getpid()), None)
    except (OSError, AttributeError):
        return None
