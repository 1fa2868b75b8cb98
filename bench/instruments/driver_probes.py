"""For `driver_graphs.py` and `driver_stages.py`: what this process takes beside PyTorch's allocator, and probes in processes of their own."""
import ctypes, json, os, traceback
import torch
M = 1 << 20


class P(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


def nvml():
    """Bytes of this process by NVML; None where NVML does not list it."""
    lib = ctypes.CDLL("libnvidia-ml.so.1")
    lib.nvmlInit_v2()
    h = ctypes.c_void_p()
    uuid = "GPU-" + str(torch.cuda.get_device_properties(0).uuid)
    if lib.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(h)):
        lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(h))

    def used():
        n, rows = ctypes.c_uint(256), (P * 256)()
        lib.nvmlDeviceGetComputeRunningProcesses_v3(h, ctypes.byref(n), rows)
        mine = [rows[i].used for i in range(n.value) if rows[i].pid == os.getpid()]
        return mine[0] if mine and mine[0] < 1 << 60 else None
    return used


class Probe:
    """Notes what is taken beside PyTorch's allocator: [name, NVML of this process - reserved, total - free - reserved], MiB."""
    def __init__(self):
        self.used, self.rows = nvml(), []

    def __call__(self, name):
        torch.cuda.synchronize()
        r = torch.cuda.memory_reserved()
        f, t = torch.cuda.mem_get_info()
        n = self.used()
        row = [name, None if n is None else round((n - r) / M, 4), round((t - f - r) / M, 4)]
        self.rows.append(row)
        return row


def forked(jobs, at_once):
    """jobs: [(name, function)]: each in a process forked before CUDA is touched; prints a JSON line for each."""
    running = {}
    todo = list(jobs)
    while todo or running:
        while todo and len(running) < at_once:
            name, f = todo.pop(0)
            r, w = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(r)
                try:
                    out = f()
                except BaseException as e:
                    out = {"error": f"{type(e).__name__}: {e}"[:300], "where": traceback.format_exc()[-500:]}
                os.write(w, json.dumps({"probe": name, "said": out}).encode()[:60000])
                os._exit(0)
            os.close(w)
            running[pid] = r
        pid, _ = os.wait()
        r = running.pop(pid)
        b = b""
        while True:
            c = os.read(r, 1 << 16)
            if not c:
                break
            b += c
        os.close(r)
        print(b.decode() or json.dumps({"probe": "?", "said": "nothing"}), flush=True)
