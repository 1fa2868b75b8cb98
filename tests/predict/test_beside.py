"""`--beside now`: what this machine's GPU has in use, as its driver says; here by a library with NVML's names that one test compiles."""

import subprocess

import pytest

SCRIPT = """
import torch

model = torch.nn.Linear(1000, 1000, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.zeros(64, 1000, device="cuda")).sum().backward()
    optimizer.step()
"""
NVML = """
#include <stdio.h>
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return "an error"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &*device; return index ? 2 : 0; }
int nvmlDeviceGetMemoryInfo_v2(void *device, Memory *memory) {
    memory->total = 25757220864ull, memory->reserved = 512ull << 20, memory->used = 1536ull << 20;
    memory->free = memory->total - memory->reserved - memory->used;
    return 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned length) { snprintf(name, length, "NVIDIA GeForce RTX 4090"); return 0; }
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) { snprintf(uuid, length, "GPU-1"); return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *infos) { *count = 0; return 0; }
int nvmlSystemGetDriverVersion(char *version, unsigned length) { snprintf(version, length, "580.1"); return 0; }
"""


@pytest.fixture
def with_gpu(plimsoll):
    """The environment of a machine that has an RTX 4090 with 1.5 GiB in use."""
    folder = plimsoll.folder / "driver"
    folder.mkdir()
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-x", "c", "-o", library, "-"], input=NVML, text=True, check=True)
    return plimsoll.environment(LD_LIBRARY_PATH=str(folder))


def test_what_the_gpu_has_in_use_is_counted(plimsoll, with_gpu):
    (plimsoll.folder / "train.py").write_text(SCRIPT)
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx4090", "--beside", "now"), environment=with_gpu)
    assert ran.code == 0, ran
    assert "1.50 GiB in use by other programs" in ran.stdout


def test_the_gpu_of_this_machine_is_another_card(plimsoll, with_gpu):
    (plimsoll.folder / "train.py").write_text(SCRIPT)
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx3090", "--beside", "now"), environment=with_gpu)
    assert ran.code == 2
    assert "--beside now asks this machine's GPU, which is NVIDIA GeForce RTX 4090, not " in ran.stderr


def test_without_a_gpu_a_size_is_asked_for(plimsoll):
    (plimsoll.folder / "train.py").write_text(SCRIPT)
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx4090", "--beside", "now"))
    assert ran.code == 2
    assert "--beside now asks this machine's GPU; give a size instead" in ran.stderr


def test_windows_is_a_setting(plimsoll):
    (plimsoll.folder / "plimsoll.toml").write_text("windows = true\n")
    (plimsoll.folder / "train.py").write_text(SCRIPT)
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx4090"))
    assert "in use by Windows" in ran.stdout, ran
