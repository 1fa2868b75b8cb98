"""What a process takes on a device beside PyTorch's allocator, before and after the first use of a library or function.

    python bench/instruments/library_process.py OUT.jsonl [JOBS]

One process for each line of PROBES, forked after torch is imported and before CUDA is touched. After each step it asks NVML
for its own bytes, and PyTorch for what is reserved: a line of OUT.jsonl is a process, a step of it the name, both numbers,
what is used of the whole device, and an error if there was one. Kept: ../results/raw/libraries/process.jsonl.gz.
"""
import ctypes
import json
import os
import sys
import time

import torch
import torch.nn.functional as F


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


def nvml():
    lib = ctypes.CDLL("libnvidia-ml.so.1")
    lib.nvmlInit_v2()
    handle = ctypes.c_void_p()
    uuid = "GPU-" + str(torch.cuda.get_device_properties(0).uuid)
    if lib.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)):
        lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))

    def used():
        n, rows = ctypes.c_uint(256), (Process * 256)()
        lib.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(n), rows)
        mine = [rows[i].used for i in range(n.value) if rows[i].pid == os.getpid()]
        free, total = torch.cuda.mem_get_info()
        return (mine[0] if mine else None), total - free

    return used


def spd(n, batch=(), dtype=torch.float32):
    a = torch.randn(*batch, n, n, dtype=dtype, device="cuda")
    return a @ a.mH + n * torch.eye(n, dtype=dtype, device="cuda")


def rnd(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype, device="cuda")


def sparse(n=2000, density=0.01):
    k = int(n * n * density)
    return torch.sparse_coo_tensor(torch.randint(0, n, (2, k), device="cuda"), rnd(k), (n, n)).coalesce()


L = torch.linalg
ops = {
    "add": lambda: rnd(1000) + 1, "mm32": lambda: rnd(512, 512) @ rnd(512, 512), "mm16": lambda: rnd(512, 512, dtype=torch.bfloat16) @ rnd(512, 512, dtype=torch.bfloat16),
    "mm64": lambda: rnd(512, 512, dtype=torch.float64) @ rnd(512, 512, dtype=torch.float64), "bmm32": lambda: rnd(8, 128, 128) @ rnd(8, 128, 128), "linear32": lambda: F.linear(rnd(64, 512), rnd(512, 512), rnd(512)),
    "mm-train": lambda: (rnd(512, 512).requires_grad_() @ rnd(512, 512).requires_grad_()).sum().backward(),
    "conv32": lambda: F.conv2d(rnd(8, 64, 56, 56), rnd(64, 64, 3, 3), padding=1), "conv16": lambda: F.conv2d(rnd(8, 64, 56, 56, dtype=torch.bfloat16), rnd(64, 64, 3, 3, dtype=torch.bfloat16), padding=1),
    "conv-train": lambda: F.conv2d(rnd(8, 64, 56, 56).requires_grad_(), rnd(64, 64, 3, 3).requires_grad_(), padding=1).sum().backward(),
    "conv3d": lambda: F.conv3d(rnd(2, 16, 16, 32, 32), rnd(32, 16, 3, 3, 3), padding=1), "depthwise": lambda: F.conv2d(rnd(8, 64, 56, 56), rnd(64, 1, 3, 3), padding=1, groups=64),
    "batchnorm": lambda: F.batch_norm(rnd(8, 64, 56, 56), None, None, rnd(64), rnd(64), True), "sdpa16": lambda: F.scaled_dot_product_attention(*(rnd(2, 8, 256, 64, dtype=torch.bfloat16) for _ in range(3))),
    "sdpa32": lambda: F.scaled_dot_product_attention(*(rnd(2, 8, 256, 64) for _ in range(3))), "lstm": lambda: torch.nn.LSTM(64, 64).cuda()(rnd(10, 4, 64)),
    "ctc": lambda: F.ctc_loss(rnd(50, 4, 20).log_softmax(2), torch.randint(1, 20, (4, 10), dtype=torch.int32), torch.full((4,), 50, dtype=torch.int32), torch.full((4,), 10, dtype=torch.int32)),
    "sort": lambda: rnd(100000).sort(), "topk": lambda: rnd(1000, 1000).topk(10), "unique": lambda: torch.randint(0, 100, (10000,), device="cuda").unique(), "nonzero": lambda: (rnd(10000) > 0).nonzero(),
    "multinomial": lambda: rnd(100, 100).softmax(1).multinomial(5), "cumsum": lambda: rnd(1000, 1000).cumsum(1), "randperm": lambda: torch.randperm(100000, device="cuda"), "histc": lambda: rnd(1000).histc(),
    "softmax": lambda: rnd(1000, 1000).softmax(1), "layer_norm": lambda: F.layer_norm(rnd(100, 512), (512,)), "cross_entropy": lambda: F.cross_entropy(rnd(100, 1000), torch.randint(0, 1000, (100,), device="cuda")),
    "interpolate": lambda: F.interpolate(rnd(2, 3, 64, 64), scale_factor=2, mode="bilinear"), "grid_sample": lambda: F.grid_sample(rnd(2, 3, 64, 64), rnd(2, 32, 32, 2), align_corners=False),
    "cholesky64": lambda: L.cholesky(spd(64)), "cholesky1500": lambda: L.cholesky(spd(1500)), "cholesky-batch": lambda: L.cholesky(spd(64, (32,))), "cholesky-f64": lambda: L.cholesky(spd(512, dtype=torch.float64)),
    "cholesky_solve": lambda: torch.cholesky_solve(rnd(256, 4), spd(256)), "cholesky_inverse": lambda: torch.cholesky_inverse(spd(256)), "triangular": lambda: L.solve_triangular(rnd(256, 256).triu(), rnd(256, 4), upper=True),
    "qr256": lambda: L.qr(rnd(256, 256)), "qr2000": lambda: L.qr(rnd(2000, 1000)), "qr-batch": lambda: L.qr(rnd(32, 64, 64)),
    "svd64": lambda: L.svd(rnd(64, 64)), "svd1024": lambda: L.svd(rnd(1024, 1024), full_matrices=False), "svd-batch": lambda: L.svd(rnd(32, 48, 48)), "svd-gesvd": lambda: L.svd(rnd(256, 256), driver="gesvd"),
    "svd-gesvda": lambda: L.svd(rnd(512, 64), full_matrices=False, driver="gesvda"), "svdvals": lambda: L.svdvals(rnd(512, 512)), "svd_lowrank": lambda: torch.svd_lowrank(rnd(1000, 500), 20),
    "eigh64": lambda: L.eigh(spd(64)), "eigh1024": lambda: L.eigh(spd(1024)), "eigh-batch": lambda: L.eigh(spd(32, (16,))), "eigh-f64": lambda: L.eigh(spd(400, dtype=torch.float64)), "eigvalsh": lambda: L.eigvalsh(spd(300)),
    "eig": lambda: L.eig(rnd(128, 128)), "lu": lambda: torch.linalg.lu_factor(rnd(512, 512)), "lu-batch": lambda: torch.linalg.lu_factor(rnd(32, 64, 64)), "solve": lambda: L.solve(rnd(512, 512), rnd(512, 4)),
    "solve-batch": lambda: L.solve(rnd(64, 32, 32), rnd(64, 32, 4)), "inv": lambda: L.inv(rnd(512, 512)), "inv-batch": lambda: L.inv(rnd(64, 32, 32)), "det": lambda: L.det(rnd(128, 128)), "slogdet": lambda: L.slogdet(rnd(128, 128)),
    "lstsq": lambda: L.lstsq(rnd(500, 50), rnd(500, 3)), "ldl": lambda: L.ldl_factor(spd(128)), "pinv": lambda: L.pinv(rnd(200, 100)), "matrix_exp": lambda: torch.matrix_exp(rnd(64, 64) / 64), "householder": lambda: L.householder_product(rnd(100, 50), rnd(50)),
    "solve-complex": lambda: L.solve(rnd(128, 128, dtype=torch.complex64), rnd(128, 2, dtype=torch.complex64)),
    "sparse-mm": lambda: torch.sparse.mm(sparse(), rnd(2000, 32)), "sparse-csr-mm": lambda: sparse().to_sparse_csr() @ rnd(2000, 32), "sparse-mv": lambda: sparse().to_sparse_csr() @ rnd(2000), "spgemm": lambda: torch.sparse.mm(sparse(500), sparse(500)),
    "sampled": lambda: torch.sparse.sampled_addmm(sparse(500).to_sparse_csr(), rnd(500, 32), rnd(32, 500)), "coalesce": lambda: sparse(),
    "fft1024": lambda: torch.fft.fft(rnd(64, 1024)), "rfft1024": lambda: torch.fft.rfft(rnd(64, 1024)), "irfft": lambda: torch.fft.irfft(rnd(64, 513, dtype=torch.complex64)), "fft-odd": lambda: torch.fft.fft(rnd(64, 1021)), "fft-long": lambda: torch.fft.fft(rnd(1 << 20)),
    "fft2": lambda: torch.fft.fft2(rnd(8, 256, 256)), "rfft2": lambda: torch.fft.rfft2(rnd(8, 256, 256)), "fftn3": lambda: torch.fft.fftn(rnd(64, 64, 64)), "fft-f64": lambda: torch.fft.fft(rnd(64, 1000, dtype=torch.float64)),
    "stft": lambda: torch.stft(rnd(4, 16000), 1024, 256, window=torch.hann_window(1024, device="cuda"), return_complex=True),
}


def adam(**options):
    model = torch.nn.Linear(512, 512).cuda()
    it = torch.optim.AdamW(model.parameters(), **options)
    model(rnd(4, 512)).sum().backward()
    it.step()


def on_a_stream():
    with torch.cuda.stream(torch.cuda.Stream()):
        rnd(512, 512) @ rnd(512, 512)


def graph(n=20):
    x, w = rnd(512, 512), rnd(512, 512)
    s = torch.cuda.Stream()
    with torch.cuda.stream(s):
        for _ in range(3):
            x @ w
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = x
        for _ in range(n):
            y = (y @ w).relu()
    g.replay()
    KEPT.append(g)


KEPT = []
ops |= {"adam": adam, "adam-fused": lambda: adam(fused=True), "stream": on_a_stream, "graph20": graph, "graph500": lambda: graph(500), "sleep": lambda: time.sleep(0.1)}
PROBES = [["add", "sleep", name] for name in ops if name not in ("add", "sleep")]
PROBES += [["add", "mm32", name] for name in ("cholesky64", "qr256", "svd64", "eigh64", "lu", "solve", "inv", "eig", "lstsq", "sparse-mm", "spgemm", "fft1024", "conv32", "lstm")]
PROBES += [["add", "cholesky64", "cholesky1500", "qr256", "svd64", "eigh64", "lu", "eig"], ["add", "eigh64", "eigh1024", "svd64", "svd1024", "qr256"], ["add", "sparse-mm", "sparse-csr-mm", "spgemm", "cholesky64", "fft1024"],
           ["add", "fft1024", "fft1024", "rfft1024", "fft2", "rfft2", "fftn3", "fft-odd", "fft-long", "stft", "irfft"], ["add", "conv32", "conv16", "conv-train", "conv3d", "lstm", "sdpa16"], ["add", "mm32", "mm16", "mm-train", "mm64", "bmm32", "linear32", "sdpa32"],
           ["add", "graph20", "graph20", "graph500", "graph20"], ["add", "stream", "stream", "stream", "mm32"], ["add", "svd1024", "svd1024", "svd64", "svd-gesvd"], ["add", "sort", "topk", "unique", "multinomial", "cumsum", "randperm"]]


def probe(names, out):
    rows = []
    torch.cuda.init()
    torch.empty(1, device="cuda")
    used = nvml()

    def note(name, error=None):
        torch.cuda.synchronize()
        mine, all_ = used()
        rows.append([name, mine, torch.cuda.memory_reserved(), all_] + ([error] if error else []))

    note("context")
    for name in names:
        try:
            ops[name]()
            note(name)
        except Exception as error:
            note(name, f"{type(error).__name__}: {error}"[:120])
    with open(out, "a") as file:
        file.write(json.dumps({"probe": names, "steps": rows}) + "\n")


def main():
    if sys.argv[1:] in ([], ["--help"]):
        sys.exit(__doc__)
    out, jobs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4
    end, left, running = time.time() + 110, list(PROBES), set()
    while (left or running) and time.time() < end:
        while left and len(running) < jobs:
            names = left.pop(0)
            pid = os.fork()
            if not pid:
                try:
                    probe(names, out)
                finally:
                    os._exit(0)
            running.add(pid)
        pid, _ = os.wait()
        running.discard(pid)


main()
