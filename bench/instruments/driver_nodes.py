"""What the driver takes for graphs that can be launched: steps of 2 MiB of this process by NVML, by kinds of nodes and their bytes.
driver_nodes.py all OUT.jsonl [AT_ONCE] runs each below in a process of its own, driver_nodes.py one JSON one of them."""
import ctypes as C, json, os, random, subprocess, sys, time
MIB = 1 << 20
SIZES = [0, 4, 8, 16, 32, 40, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4000, 4096, 6000, 8192, 16384, 32000]


class P(C.Structure):
    _fields_ = [("pid", C.c_uint), ("used", C.c_ulonglong), ("gi", C.c_uint), ("ci", C.c_uint)]


def ptx():
    out = ".version 8.1\n.target sm_90\n.address_size 64\n"
    for s in SIZES:
        p = f".param .align 8 .b8 p[{s}]" if s else ""
        out += f".visible .entry k{s}({p}) {{ ret; }}\n"
    return out.encode() + b"\0"


class Gpu:
    def __init__(self):
        self.cu = cu = C.CDLL("libcuda.so.1")
        self.ok(cu.cuInit(0))
        dev = C.c_int(); self.ok(cu.cuDeviceGet(C.byref(dev), 0))
        self.ctx = C.c_void_p(); self.ok(cu.cuDevicePrimaryCtxRetain(C.byref(self.ctx), dev)); self.ok(cu.cuCtxSetCurrent(self.ctx))
        self.nv = C.CDLL("libnvidia-ml.so.1"); self.nv.nvmlInit_v2()
        self.h = C.c_void_p(); self.nv.nvmlDeviceGetHandleByIndex_v2(0, C.byref(self.h))
        mod = C.c_void_p(); self.ok(cu.cuModuleLoadData(C.byref(mod), ptx()))
        self.f = {}
        for s in SIZES:
            f = C.c_void_p(); self.ok(cu.cuModuleGetFunction(C.byref(f), mod, f"k{s}".encode())); self.f[s] = f
        self.stream = C.c_void_p(); self.ok(cu.cuStreamCreate(C.byref(self.stream), 1))
        self.other = C.c_void_p(); self.ok(cu.cuStreamCreate(C.byref(self.other), 1))
        self.ev = [C.c_void_p() for _ in range(2)]
        for e in self.ev: self.ok(cu.cuEventCreate(C.byref(e), 2))
        self.mem = C.c_ulonglong(); self.ok(cu.cuMemAlloc_v2(C.byref(self.mem), C.c_size_t(4 * MIB)))
        self.pinned = C.c_void_p(); self.ok(cu.cuMemAllocHost_v2(C.byref(self.pinned), C.c_size_t(MIB)))
        self.buf = C.create_string_buffer(40000)
        self.args = (C.c_void_p * 1)(C.cast(self.buf, C.c_void_p))
        for k in ("k", "c", "s", "h", "d"):
            self.node(k, 8, self.stream)
        self.ok(cu.cuStreamSynchronize(self.stream))

    def ok(self, rc):
        if rc: raise RuntimeError(f"cuda {rc}")

    def used(self):
        n, rows = C.c_uint(256), (P * 256)()
        self.nv.nvmlDeviceGetComputeRunningProcesses_v3(self.h, C.byref(n), rows)
        return [rows[i].used for i in range(n.value) if rows[i].pid == os.getpid()][0]

    def node(self, kind, size, stream):
        cu = self.cu
        if kind == "k":      # a kernel with so many bytes of parameters
            self.ok(cu.cuLaunchKernel(self.f[size], 1, 1, 1, 32, 1, 1, 0, stream, self.args if size else None, None))
        elif kind in "gSx":  # larger grid; dynamic shared memory
            self.ok(cu.cuLaunchKernel(self.f[size], 1000 if kind == "g" else 1, 7 if kind == "g" else 1, 1, 256, 1, 1, 40000 if kind == "S" else 0, stream, self.args, None))
        elif kind in "pq":   # programmatic dependent launch; clusters
            class A(C.Structure): _fields_ = [("id", C.c_int), ("pad", C.c_int), ("v", C.c_uint * 16)]
            class L(C.Structure): _fields_ = [("g", C.c_uint * 6), ("sh", C.c_uint), ("stream", C.c_void_p), ("attrs", C.c_void_p), ("n", C.c_uint)]
            a = A(); a.id = 6 if kind == "p" else 4
            a.v[0] = 1 if kind == "p" else 2
            if kind == "q": a.v[1] = a.v[2] = 1
            l = L(); l.g[:] = [2, 1, 1, 32, 1, 1]; l.stream = stream; l.attrs = C.addressof(a); l.n = 1
            self.ok(cu.cuLaunchKernelEx(C.byref(l), self.f[size], self.args, None))
        elif kind == "c":
            self.ok(cu.cuMemcpyDtoDAsync_v2(C.c_ulonglong(self.mem.value), C.c_ulonglong(self.mem.value + MIB), C.c_size_t(max(size, 1)), stream))
        elif kind == "s":
            self.ok(cu.cuMemsetD8Async(self.mem, C.c_ubyte(0), C.c_size_t(max(size, 1)), stream))
        elif kind == "h":
            self.ok(cu.cuMemcpyHtoDAsync_v2(self.mem, self.pinned, C.c_size_t(max(size, 1)), stream))
        elif kind == "d":
            self.ok(cu.cuMemcpyDtoHAsync_v2(self.pinned, self.mem, C.c_size_t(max(size, 1)), stream))

    def graph(self, nodes, branches=False):
        cu = self.cu
        self.ok(cu.cuStreamBeginCapture_v2(self.stream, 2))
        if branches:
            self.ok(cu.cuEventRecord(self.ev[0], self.stream)); self.ok(cu.cuStreamWaitEvent(self.other, self.ev[0], 0))
        for kind, size, n in nodes:
            for i in range(n):
                self.node(kind, size, self.other if branches and i % 2 else self.stream)
        if branches:
            self.ok(cu.cuEventRecord(self.ev[1], self.other)); self.ok(cu.cuStreamWaitEvent(self.stream, self.ev[1], 0))
        g = C.c_void_p(); self.ok(cu.cuStreamEndCapture(self.stream, C.byref(g)))
        return g

    def exec(self, g, flags=1):
        e = C.c_void_p(); self.ok(self.cu.cuGraphInstantiateWithFlags(C.byref(e), g, C.c_ulonglong(flags)))
        return e


def one(c):
    gpu, cu = Gpu(), None
    cu = gpu.cu
    out = dict(c, steps=[], before=gpu.used() / MIB)
    last, execs, kept = gpu.used(), [], []
    r = random.Random(c.get("seed", 0))
    t = time.time()

    def look(at, what):
        nonlocal last
        u = gpu.used()
        if u != last:
            out["steps"].append([at, (u - last) // MIB, what])
            last = u
    seq = []
    for i in range(1, c["graphs"] + 1):
        nodes = c["nodes"]
        if c.get("random"):
            nodes = [[r.choice("kkkkkkgcs"), r.choice([8, 40, 64, 128, 256, 512, 1024, 4000]), r.randint(1, 4)] for _ in range(r.randint(1, c["random"]))]
            seq.append(nodes)
        g = gpu.graph(nodes, c.get("branches"))
        if c.get("looks"): look(i, "captured")
        if c.get("only_graph"):
            kept.append(g); look(i, "graph"); continue
        e = gpu.exec(g, c.get("flags", 1)); look(i, "exec")
        if c.get("keep"): kept.append(g)
        else: gpu.ok(cu.cuGraphDestroy(g))
        execs.append(e)
        if c.get("launch"):
            gpu.ok(cu.cuGraphLaunch(e, gpu.stream)); gpu.ok(cu.cuStreamSynchronize(gpu.stream)); look(i, "launch")
    if not c.get("launch") and execs:
        for e in execs[:20]: gpu.ok(cu.cuGraphLaunch(e, gpu.stream))
        gpu.ok(cu.cuStreamSynchronize(gpu.stream)); look(c["graphs"], "launched")
    if c.get("again"):      # all are destroyed, and others made
        for e in execs: gpu.ok(cu.cuGraphExecDestroy(e))
        look(0, "destroyed"); execs = []
        for i in range(1, c["again_graphs"] + 1):
            g = gpu.graph(c["again"]); execs.append(gpu.exec(g)); gpu.ok(cu.cuGraphDestroy(g)); look(i, "again")
    if seq and c.get("keep_seq", True): out["seq"] = seq
    out["seconds"] = round(time.time() - t, 2)
    print(json.dumps(out), flush=True)


def configs():
    L = []
    def add(name, nodes, graphs, **k): L.append(dict(name=name, nodes=nodes, graphs=graphs, **k))
    for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 24, 28, 32, 40, 48, 64, 96, 128, 200, 256, 300, 400, 512, 800, 1000, 2000):
        add(f"k8 x{n}", [["k", 8, n]], 300 if n <= 20 else max(12, 9000 // n))
    for s in SIZES:
        add(f"k{s} x10", [["k", s, 10]], 200)
        add(f"k{s} x100", [["k", s, 100]], 40)
        add(f"k{s} x1000", [["k", s, 1000]], 10)
    for k, w in (("c", 1024), ("c", 64), ("c", 262144), ("s", 1024), ("s", 4), ("s", 1000000), ("h", 1024), ("d", 1024), ("g", 40), ("S", 40), ("p", 40), ("q", 40)):
        for n, m in ((1, 200), (10, 200), (100, 40), (1000, 10)):
            add(f"{k}{w} x{n}", [[k, w, n]], m)
    add("k8 x10 branches", [["k", 8, 10]], 200, branches=True)
    add("k8 x100 branches", [["k", 8, 100]], 40, branches=True)
    add("k8 x10 kept graph", [["k", 8, 10]], 200, keep=True, looks=True)
    add("k8 x100 only graph", [["k", 8, 100]], 100, only_graph=True)
    add("k8 x10 flags 0", [["k", 8, 10]], 200, flags=0)
    add("k8 x10 launch", [["k", 8, 10]], 200, launch=True)
    add("k8 x100 launch", [["k", 8, 100]], 40, launch=True)
    for s, n in ((8, 10), (8, 100), (1024, 10), (1024, 100)):
        add(f"mix k{s}+c x{n}", [["k", s, n // 2], ["c", 1024, n // 2]], 2000 // n)
        add(f"mix k{s}+k8 x{n}", [["k", s, n // 2], ["k", 8, n // 2]], 2000 // n)
    for seed in range(8):
        add(f"random {seed}", [], 150, random=(3, 6, 12, 30)[seed % 4], seed=seed)
    add("k8 x10 then x100", [["k", 8, 10]], 60, again=[["k", 8, 100]], again_graphs=40)
    add("k8 x100 then x10", [["k", 8, 100]], 20, again=[["k", 8, 10]], again_graphs=300)
    add("k8 x10 then x10", [["k", 8, 10]], 60, again=[["k", 8, 10]], again_graphs=200)
    add("k1024 x10 then k8 x10", [["k", 1024, 10]], 60, again=[["k", 8, 10]], again_graphs=200)
    return L


def everything(out, at_once):
    todo, running = configs(), []
    todo.sort(key=lambda c: -c["graphs"])
    t = time.time()
    with open(out, "w") as f:
        while todo or running:
            while todo and len(running) < at_once:
                c = todo.pop(0)
                running.append((c, subprocess.Popen([sys.executable, "-S", os.path.abspath(__file__), "one", json.dumps(c)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)))
            c, p = running.pop(0)
            a, b = p.communicate()
            f.write(a or json.dumps(dict(c, error=b[-300:])) + "\n"); f.flush()
    print(f"probe: {time.time() - t:.0f} s, {len(configs())} configs")


if __name__ == "__main__":
    if sys.argv[1] == "one": one(json.loads(sys.argv[2]))
    else: everything(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 10)
