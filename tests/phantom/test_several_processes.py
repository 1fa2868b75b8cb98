"""Several processes on one device: together they have what it has, and each has its context there."""

HELPERS = """
import ctypes, json, os, subprocess, sys, time, torch

# Asks the phantom as a program does, without the seconds that importing torch takes.
OTHER = '''
import ctypes, sys
phantom, at = ctypes.CDLL(None), ctypes.c_uint64()
phantom.cudaSetDevice(int(sys.argv[2]))
print(phantom.cudaMalloc(ctypes.byref(at), ctypes.c_size_t(int(sys.argv[1]) << 20)), flush=True)
sys.stdin.read()
'''

def other(mib, device=0, **environment):
    it = subprocess.Popen([sys.executable, "-c", OTHER, str(mib), str(device)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env={**os.environ, **environment})
    it.answer = int(it.stdout.readline())
    return it

def free(device=0):
    return torch.cuda.mem_get_info(device)[0] >> 20

def used_by_nvml(device=0):
    nvml, handle, memory = ctypes.CDLL(None), ctypes.c_uint64(), (ctypes.c_uint64 * 3)()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(device, ctypes.byref(handle)) == 0
    assert nvml.nvmlDeviceGetMemoryInfo(handle, memory) == 0
    return memory[2] >> 20

def processes_by_nvml():
    nvml, handle, count, out = ctypes.CDLL(None), ctypes.c_uint64(), ctypes.c_uint32(9), (ctypes.c_uint64 * 18)()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
    assert nvml.nvmlDeviceGetComputeRunningProcesses(handle, ctypes.byref(count), out) == 0
    return {out[2 * i] & 0xffffffff: out[2 * i + 1] >> 20 for i in range(count.value)}
"""


def test_together_they_have_what_the_card_has(phantom):
    ran = phantom(
        HELPERS
        + """
context = used_by_nvml()
alone = free()
first = other(10 << 10)
out = [first.answer, alone - free() - (10 << 10) - context, used_by_nvml() - 2 * context - (10 << 10), processes_by_nvml() == {
    os.getpid(): context, first.pid: context + (10 << 10)}]
try:
    torch.empty(14 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    out.append("14.00 GiB" in str(error))
mine = torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
second = other(10 << 10)
out.append(second.answer)
first.kill()  # Not waited for: what a killed process held is free at once.
os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
out.append(alone - free() - (4 << 10) - context)  # The second one has its context still.
second.kill()
os.waitid(os.P_PID, second.pid, os.WEXITED | os.WNOWAIT)
out.append(alone - free() - (4 << 10))
print(json.dumps(out))
""",
        "--gpu",
        "rtx4090",
    )
    assert ran.values == [0, 0, 0, True, True, 2, 0, 0]
    [device] = ran.report["devices"]
    assert len(device["ran_out_beside"]) == 1
    assert 14 << 30 < device["together_bytes"] < 16 << 30


def test_each_device_is_shared_by_itself(phantom):
    ran = phantom(
        HELPERS
        + """
before = [free(0), free(1)]
there, renamed = other(5 << 10, 1), other(6 << 10, 0, CUDA_VISIBLE_DEVICES="1")
after = [free(0), free(1)]
out = [there.answer, renamed.answer, before[0] - after[0], 11 << 10 < before[1] - after[1] < 13 << 10]
there.kill(), renamed.kill(), there.wait(), renamed.wait()
out.append([free(0), free(1)] == before)
print(json.dumps(out))
""",
        "--gpu",
        "rtx4090",
        "--gpus",
        "2",
    )
    assert ran.values == [0, 0, 0, True, True]


def test_a_child_that_was_forked_takes_nothing_of_its_parent(phantom):
    ran = phantom(
        HELPERS
        + """
mine = torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
before = free()
if (child := os.fork()) == 0:
    del mine
    torch.cuda.empty_cache()
    os._exit(0)
os.waitpid(child, 0)
print(json.dumps([before - free(), used_by_nvml() // 1024]))
""",
        "--gpu",
        "rtx4090",
    )
    assert ran.values == [0, 4]


def test_devices_that_only_the_users_machine_has_are_told_apart(phantom):
    ran = phantom(
        HELPERS
        + """
before = free()
others = [other(20 << 10, CUDA_VISIBLE_DEVICES=it) for it in ("1", "2", "GPU-1a2b", "0")]
out = [it.answer for it in others] + [(before - free()) >> 10]
for it in others:
    it.kill(), it.wait()
print(json.dumps(out))
""",
        "--gpu",
        "rtx4090",
    )
    assert ran.values == [0, 0, 0, 0, 20]
