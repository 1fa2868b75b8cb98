"""What NVIDIA's libraries and torch's allocator answer: the truth for the phantom's cuDNN, cuSOLVER, cuFFT and cuSPARSE.

    python bench/instruments/library_facts.py OUT.jsonl [SECTION,... [PREFIX,...]]

Sections: rnn (with CTC), solver, fft, sparse: sizes that the libraries name for many shapes, asked by ctypes; ops: calls
of torch whose names begin with a PREFIX, each with what the allocator was asked for, twice in a row. A line per fact.
Run it on a GPU for the truth and on the phantom for its answer, and let library_compare.py tell them apart. Each section has a
time limit and should have a process of its own: a fault of one call ends all that follow.
"""
import ctypes as C, gc, json, random, sys, time, traceback
import torch, torch.nn as nn, torch.nn.functional as F
if sys.argv[1:] in ([], ["--help"]):
    sys.exit(__doc__)
OUT = open(sys.argv[1], "w")
WANT = sys.argv[2].split(",") if len(sys.argv) > 2 else ["rnn", "solver", "fft", "sparse", "ops"]
P, I, L, D, Z = C.c_void_p, C.c_int, C.c_int64, C.c_double, C.c_size_t
def put(*row):
    OUT.write(json.dumps(row, separators=(",", ":")) + "\n")
def free(): return torch.cuda.mem_get_info()[0]
DEV = "cuda"
t_all = time.monotonic()
torch.zeros(1, device=DEV)
put("machine", torch.cuda.get_device_name(), torch.__version__, torch.backends.cudnn.version(), sys.version.split()[0], free())
def library(name):
    C.CDLL(name, mode=C.RTLD_GLOBAL); return C.CDLL(None)
class Cap:
    def __init__(s, seconds): s.end = time.monotonic() + seconds
    def over(s): return time.monotonic() > s.end

# ---------------------------------------------------------------- cuDNN RNN
def rnn_section():
    lib = library("libcudnn.so.9")
    def ok(status, what):
        if status: raise RuntimeError(f"{what} {status}")
    handle = P(); ok(lib.cudnnCreate(C.byref(handle)), "create")
    states = Z(); ok(lib.cudnnDropoutGetStatesSize(handle, C.byref(states)), "states")
    put("dropout_states", states.value)
    drop0, drop1 = P(), P()
    lib.cudnnCreateDropoutDescriptor(C.byref(drop0)); lib.cudnnCreateDropoutDescriptor(C.byref(drop1))
    lib.cudnnSetDropoutDescriptor.argtypes = [P, P, C.c_float, P, Z, C.c_uint64]
    ok(lib.cudnnSetDropoutDescriptor(drop0, handle, 0.0, None, 0, 0), "drop0")
    mem = torch.empty(max(states.value, 1), dtype=torch.uint8, device=DEV)
    ok(lib.cudnnSetDropoutDescriptor(drop1, handle, 0.25, mem.data_ptr(), states.value, 1), "drop1")
    lib.cudnnSetRNNDescriptor_v8.argtypes = [P] + [I] * 8 + [I] * 4 + [P, C.c_uint32]
    lib.cudnnSetRNNDataDescriptor.argtypes = [P, I, I, I, I, I, P, P]
    lib.cudnnGetRNNTempSpaceSizes.argtypes = [P, P, I, P, P, P]
    lib.cudnnGetRNNWeightSpaceSize.argtypes = [P, P, P]
    lib.cudnnGetRNNWeightParams.argtypes = [P, P, I, Z, P, I, P, P, P, P]
    lib.cudnnGetTensorNdDescriptor.argtypes = [P, I, P, P, P, P]
    for name in ("cudnnDestroyRNNDescriptor", "cudnnDestroyRNNDataDescriptor"): getattr(lib, name).argtypes = [P]
    T = {"f": 0, "d": 1, "h": 2, "b": 9}
    def describe(c):
        # c: algo, cell, bias, dir, dtype, math, input, hidden, proj(=hidden if none), layers, drop, packed
        algo, cell, bias, direction, dt, math, inp, hid, proj, layers, drop, packed = c
        d = P(); lib.cudnnCreateRNNDescriptor(C.byref(d))
        t = T[dt]; prec = 1 if dt == "d" else 0
        status = lib.cudnnSetRNNDescriptor_v8(d, algo, cell, bias, direction, 0, t, prec, math, inp, hid, proj, layers, drop1 if drop else drop0, 0 if packed else 1)
        return d, status
    def sizes(c, seq, batch, lengths):
        d, status = describe(c)
        if status:
            put("rnn", *c, seq, batch, "status", status); lib.cudnnDestroyRNNDescriptor(d); return
        w = Z(); s0 = lib.cudnnGetRNNWeightSpaceSize(handle, d, C.byref(w))
        x = P(); lib.cudnnCreateRNNDataDescriptor(C.byref(x))
        array = (I * batch)(*lengths); fill = C.c_double(0.0)
        s1 = lib.cudnnSetRNNDataDescriptor(x, T[c[4]], 1 if c[11] else 0, seq, batch, c[6], array, C.byref(fill))
        res = []
        for mode in (1, 0):
            ws, rs = Z(), Z()
            s2 = lib.cudnnGetRNNTempSpaceSizes(handle, d, mode, x, C.byref(ws), C.byref(rs))
            res += [ws.value, rs.value] if not s2 else [-s2, -s2]
        put("rnn", *c, seq, batch, -s0 if s0 else w.value, *res, *([sum(lengths), s1] if c[11] or s1 else []))
        lib.cudnnDestroyRNNDataDescriptor(x); lib.cudnnDestroyRNNDescriptor(d)
    def layout(c):
        d, status = describe(c)
        if status: return
        cell, bias, direction, layers = c[1], c[2], c[3], c[9]
        w = Z(); lib.cudnnGetRNNWeightSpaceSize(handle, d, C.byref(w))
        buffer = torch.empty(max(w.value, 1), dtype=torch.uint8, device=DEV); base = buffer.data_ptr()
        m, b = P(), P(); lib.cudnnCreateTensorDescriptor(C.byref(m)); lib.cudnnCreateTensorDescriptor(C.byref(b))
        gates = {0: 2, 1: 2, 2: 8, 3: 6}[cell]
        rows = []
        def shape(desc):
            dt, nd = I(), I(); dims, strides = (I * 8)(), (I * 8)()
            lib.cudnnGetTensorNdDescriptor(desc, 8, C.byref(dt), C.byref(nd), dims, strides)
            return [dt.value, nd.value, list(dims[: max(0, min(8, nd.value))]), list(strides[: max(0, min(8, nd.value))])]
        for layer in range(layers * (2 if direction else 1)):
            for lin in range(gates + (1 if c[8] != c[7] else 0)):
                ma, ba = P(), P()
                s = lib.cudnnGetRNNWeightParams(handle, d, layer, w.value, base, lin, m, C.byref(ma), b, C.byref(ba))
                if s: rows.append([layer, lin, "status", s]); continue
                rows.append([layer, lin, ma.value - base if ma.value else None, shape(m), ba.value - base if ba.value else None, shape(b)])
        put("rnn_layout", *c, w.value, rows)
        lib.cudnnDestroyRNNDescriptor(d)
    cap = Cap(36)
    for cell in (0, 1, 2, 3):
        for c in ((0, cell, 2, 0, "f", 0, 100, 64, 64, 1, 0, 0), (0, cell, 2, 1, "f", 0, 33, 50, 50, 2, 0, 0), (0, cell, 0, 1, "h", 1, 128, 256, 256, 2, 1, 0), (1, cell, 2, 0, "h", 1, 128, 256, 256, 1, 0, 0)):
            layout(c)
    layout((0, 2, 2, 0, "f", 0, 100, 64, 32, 2, 0, 0)); layout((0, 2, 2, 1, "f", 0, 33, 50, 20, 2, 0, 0)); layout((0, 2, 0, 1, "h", 1, 33, 50, 20, 2, 0, 0))
    # One thing at a time around usual sizes.
    M = {"f": 0, "h": 1, "b": 0, "d": 0}
    H = [1, 3, 8, 16, 20, 32, 50, 64, 100, 128, 129, 200, 256, 300, 384, 400, 512, 640, 650, 768, 1000, 1024, 1150, 1500, 2048]
    B = [1, 2, 3, 4, 5, 7, 8, 10, 15, 16, 17, 20, 24, 31, 32, 33, 48, 50, 64, 65, 96, 100, 128, 200, 256, 512, 1000, 1024]
    S = [1, 2, 3, 4, 5, 7, 8, 10, 12, 16, 20, 24, 28, 30, 32, 35, 40, 50, 64, 70, 80, 100, 128, 150, 200, 256, 300, 400, 512, 1000, 1024, 2000]
    for cell in (2, 3, 1, 0):
        for dt in ("f", "h", "b", "d"):
            for layers, direction in ((1, 0), (2, 1), (3, 0)):
                base = dict(inp=128, hid=256, seq=64, batch=32)
                def one(**k):
                    it = {**base, **k}
                    sizes((0, cell, 2, direction, dt, M[dt], it["inp"], it["hid"], it["hid"], layers, 0, 0), it["seq"], it["batch"], [it["seq"]] * it["batch"])
                for h in H: one(hid=h)
                for h in H: one(inp=h)
                for b in B: one(batch=b)
                for s in S: one(seq=s)
                if cap.over(): put("cut", "rnn sweeps", cell, dt); break
    # Anything with anything.
    r = random.Random(7); cap = Cap(25); n = 0
    while not cap.over() and n < 9000:
        n += 1
        cell = r.choice((2, 2, 2, 3, 3, 1, 0)); dt = r.choice("fffhhbbd"); hid = r.choice(H + [r.randint(1, 1200)]); inp = r.choice(H + [r.randint(1, 1200)])
        proj = r.randint(1, max(1, hid - 1)) if cell == 2 and hid > 1 and r.random() < .15 else hid
        batch = r.choice(B + [r.randint(1, 300)]); seq = r.choice(S + [r.randint(1, 600)]); packed = r.random() < .3
        algo = 1 if r.random() < .15 and proj == hid and not packed else 0
        lengths = sorted([r.randint(1, seq) for _ in range(batch - 1)] + [seq], reverse=True) if packed else [seq] * batch
        math = {"f": r.choice((0, 0, 3)), "h": r.choice((1, 1, 1, 0)), "b": r.choice((0, 1)), "d": 0}[dt]
        sizes((algo, cell, r.choice((2, 2, 2, 0)), r.choice((0, 0, 1)), dt, math, inp, hid, proj, r.choice((1, 1, 2, 2, 3, 4, 6)), int(r.random() < .3), int(packed)), seq, batch, lengths)
    # Dense corner for the persistent algorithm as torch chooses it: one layer, one direction, multiples of 128.
    cap = Cap(12)
    for dt in ("h", "b", "f"):
        for cell in (2, 3, 1, 0):
            for hid in (128, 256, 384, 512, 640, 768, 1024):
                for inp in (128, 256, 512, 1024):
                    for batch in (1, 8, 16, 32, 40, 64, 96, 128, 256):
                        for seq in (5, 10, 20, 50, 100, 128, 400):
                            if cap.over(): break
                            sizes((1, cell, 2, 0, dt, M[dt], inp, hid, hid, 1, 0, 0), seq, batch, [seq] * batch)
    # CTC loss
    lib.cudnnSetTensorNdDescriptor.argtypes = [P, I, I, P, P]
    lib.cudnnSetCTCLossDescriptor_v9.argtypes = [P, I, I, I, I]
    lib.cudnnGetCTCLossWorkspaceSize.argtypes = [P, P, P, P, P, P, I, P, P]
    p, g = P(), P(); lib.cudnnCreateTensorDescriptor(C.byref(p)); lib.cudnnCreateTensorDescriptor(C.byref(g)); ct = P(); lib.cudnnCreateCTCLossDescriptor(C.byref(ct))
    r = random.Random(3); cap = Cap(5)
    grid = [(t, b, a, l) for t in (10, 50, 128, 200, 255, 400) for b in (1, 4, 16, 32, 100) for a in (5, 11, 29, 37, 80, 1000) for l in (1, 5, 10, 30, 100, 255)]
    r.shuffle(grid)
    for t, b, a, l in grid[:700]:
        if cap.over(): break
        dims, strides = (I * 3)(t, b, a), (I * 3)(b * a, a, 1)
        lib.cudnnSetTensorNdDescriptor(p, 0, 3, dims, strides); lib.cudnnSetTensorNdDescriptor(g, 0, 3, dims, strides)
        s = lib.cudnnSetCTCLossDescriptor_v9(ct, 0, 1, 0, l); row = [s]
        for algo in (0, 1):
            out = Z()
            f = lib.cudnnGetCTCLossWorkspaceSize_v8; f.argtypes = [P, I, P, P, P, P]
            s = f(handle, algo, ct, p, g, C.byref(out)); row.append(-s if s else out.value)
            lab = (I * (b * l))(*([1 + i % (a - 1) for i in range(b * l)])); ll = (I * b)(*([l] * b)); tl = (I * b)(*([t] * b)); out2 = Z()
            f2 = lib.cudnnGetCTCLossWorkspaceSize; f2.argtypes = [P, P, P, P, P, P, I, P, P]
            s = f2(handle, p, g, lab, ll, tl, algo, ct, C.byref(out2)); row.append(-s if s else out2.value)
        put("ctc", t, b, a, l, *row)

# ---------------------------------------------------------------- cuSOLVER
def solver_section():
    torch.linalg.eigh(torch.eye(4, device=DEV))
    lib = library("libcusolver.so.12")
    handle, params = P(), P(); s = lib.cusolverDnCreate(C.byref(handle)); before = free(); lib.cusolverDnCreateParams(C.byref(params))
    put("solver_create", s)
    ej, sj = P(), P(); lib.cusolverDnCreateSyevjInfo(C.byref(ej)); lib.cusolverDnCreateGesvdjInfo(C.byref(sj))
    big = torch.empty(64 << 20, dtype=torch.uint8, device=DEV); A = P(big.data_ptr())
    N = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 16, 17, 20, 24, 30, 31, 32, 33, 40, 48, 50, 63, 64, 65, 80, 96, 100, 127, 128, 129, 150, 192, 200, 255, 256, 257, 300, 384, 400, 500, 511, 512, 513, 600, 640, 700, 768, 800, 1000, 1023, 1024, 1025, 1280, 1500, 1536, 2000, 2048, 2500, 3000, 3072, 4000, 4096, 5000, 6000, 8192, 10000]
    r = random.Random(5)
    RECT = [(a, b) for a in N[::3] for b in N[1::3]]; r.shuffle(RECT); RECT = RECT[:150] + [(n, n) for n in N]
    cap = Cap(32)
    def call(name, *args):
        out = I(0); f = getattr(lib, name); f.restype = I
        fixed = [C.byref(out) if a is OUTI else a for a in args]
        return (lambda s: -s if s else out.value)(f(handle, *fixed))
    OUTI = object(); n64 = C.c_longlong
    for t in "SDCZ":
        real = t in "SD"; sy, or_ = ("sy", "or") if real else ("he", "un")
        rows = {}
        def add(key, v): rows.setdefault(key, []).append(v)
        for m, n in RECT:
            if cap.over(): put("cut", "solver", t); break
            add("getrf", [m, n, call(f"cusolverDn{t}getrf_bufferSize", I(m), I(n), A, I(m), OUTI)])
            add("geqrf", [m, n, call(f"cusolverDn{t}geqrf_bufferSize", I(m), I(n), A, I(m), OUTI)])
            if m >= n:
                k = n
                add("orgqr", [m, n, k, call(f"cusolverDn{t}{or_}gqr_bufferSize", I(m), I(n), I(k), A, I(m), A, OUTI)])
                add("orgqr", [m, m, k, call(f"cusolverDn{t}{or_}gqr_bufferSize", I(m), I(m), I(k), A, I(m), A, OUTI)])
                for nr in (1, 10, 128):
                    add("ormqr", [0, 1, m, nr, k, call(f"cusolverDn{t}{or_}mqr_bufferSize", I(0), I(1 if real else 2), I(m), I(nr), I(k), A, I(m), A, A, I(m), OUTI)])
                add("ormqr", [1, 0, n, m, n, call(f"cusolverDn{t}{or_}mqr_bufferSize", I(1), I(0), I(n), I(m), I(n), A, I(m), A, A, I(n), OUTI)])
                add("gesvd", [m, n, call(f"cusolverDn{t}gesvd_bufferSize", I(m), I(n), OUTI)])
            for job in (0, 1):
                for econ in (0, 1):
                    if m * n <= 4096 * 4096:
                        ldv = n
                        add("gesvdj", [job, econ, m, n, call(f"cusolverDn{t}gesvdj_bufferSize", I(job), I(econ), I(m), I(n), A, I(m), A, A, I(m), A, I(ldv), OUTI, sj)])
                if m <= 32 and n <= 32:
                    for b in (1, 2, 10, 100):
                        add("gesvdjBatched", [job, m, n, b, call(f"cusolverDn{t}gesvdjBatched_bufferSize", I(job), I(m), I(n), A, I(m), A, A, I(m), A, I(n), OUTI, sj, I(b))])
                if m >= n and m <= 2048:
                    for b in (1, 2, 10):
                        add("gesvda", [job, m, n, b, call(f"cusolverDn{t}gesvdaStridedBatched_bufferSize", I(job), I(n), I(m), I(n), A, I(m), n64(m * n), A, n64(n), A, I(m), n64(m * n), A, I(n), n64(n * n), OUTI, I(b))])
        for n in N:
            add("potrf", [n, call(f"cusolverDn{t}potrf_bufferSize", I(0), I(n), A, I(n), OUTI)])
            if n <= 4096: add("sytrf", [n, call(f"cusolverDn{t}sytrf_bufferSize", I(n), A, I(n), OUTI)])
            for job in (0, 1):
                add("syevd", [job, n, call(f"cusolverDn{t}{sy}evd_bufferSize", I(job), I(0), I(n), A, I(n), A, OUTI)])
                if n <= 2048:
                    add("syevj", [job, n, call(f"cusolverDn{t}{sy}evj_bufferSize", I(job), I(0), I(n), A, I(n), A, OUTI, ej)])
                    for b in (1, 2, 10, 100): add("syevjBatched", [job, n, b, call(f"cusolverDn{t}{sy}evjBatched_bufferSize", I(job), I(0), I(n), A, I(n), A, OUTI, ej, I(b))])
        for key, v in rows.items(): put("solver", t, key, v)
        # The 64-bit interface: bytes on the device and on the host.
        a = {"S": 0, "D": 1, "C": 4, "Z": 5}[t]; w = {"S": 0, "D": 1, "C": 0, "Z": 1}[t]; xr = {}
        def x(name, key, shape, *args):
            d, h = Z(0), Z(0); f = getattr(lib, name); f.restype = I
            fixed = [C.byref(d) if it == "D" else C.byref(h) if it == "H" else it for it in args]
            s = f(handle, *fixed); xr.setdefault(key, []).append([*shape, -s if s else d.value, h.value])
        for n in N:
            if cap.over(): break
            x("cusolverDnXpotrf_bufferSize", "Xpotrf", [n], params, I(0), L(n), I(a), A, L(n), I(a), "D", "H")
            for job in (0, 1):
                x("cusolverDnXsyevd_bufferSize", "Xsyevd", [job, n], params, I(job), I(0), L(n), I(a), A, L(n), I(w), A, I(a), "D", "H")
                for b in (1, 2, 10, 100):
                    if n * n * b <= 1 << 26: x("cusolverDnXsyevBatched_bufferSize", "XsyevBatched", [job, n, b], params, I(job), I(0), L(n), I(a), A, L(n), I(w), A, I(a), "D", "H", L(b))
                if n <= 4096:
                    cw = {"S": 4, "D": 5, "C": 4, "Z": 5}[t]
                    x("cusolverDnXgeev_bufferSize", "Xgeev", [job, n], params, I(0), I(job), L(n), I(a), A, L(n), I(cw), A, I(a), A, L(n), I(a), A, L(n), I(a), "D", "H")
            for nr in (1, 16):
                if n <= 4096: x("cusolverDnXsytrs_bufferSize", "Xsytrs", [n, nr], I(0), L(n), L(nr), I(a), A, L(n), A, I(a), A, L(n), "D", "H")
        for m, n in RECT:
            if cap.over(): break
            x("cusolverDnXgeqrf_bufferSize", "Xgeqrf", [m, n], params, L(m), L(n), I(a), A, L(m), I(a), A, I(a), "D", "H")
        for key, v in xr.items(): put("solver", t, key, v)

# ---------------------------------------------------------------- cuFFT
def fft_section():
    torch.fft.fft(torch.zeros(8, device=DEV, dtype=torch.complex64))
    lib = library("libcufft.so.12")
    f = lib.cufftXtMakePlanMany
    f.argtypes = [I, I, P, P, L, L, I, P, L, L, I, L, P, I]
    TYPES = {"c": (4, 4, 4), "z": (5, 5, 5), "r": (0, 4, 4), "i": (4, 0, 4), "d": (1, 5, 5), "j": (5, 1, 5), "h": (6, 6, 6), "k": (2, 6, 6)}
    def plan(kind, n, batch, simple=True):
        a, b, e = TYPES[kind]; p = I(); w = Z(0)
        lib.cufftCreate(C.byref(p)); lib.cufftSetAutoAllocation(p, 0)
        rank = len(n); arr = (L * rank)(*n)
        half = list(n[:-1]) + [n[-1] // 2 + 1]
        ins = half if kind in "ij" else n; outs = half if kind in "rdk" else n
        def dist(v):
            out = 1
            for it in v: out *= it
            return out
        t0 = time.monotonic(); f0 = free()
        if simple: s = f(p, rank, arr, None, 1, 1, a, None, 1, 1, b, batch, C.byref(w), e)
        else: s = f(p, rank, arr, (L * rank)(*ins), 1, dist(ins), a, (L * rank)(*outs), 1, dist(outs), b, batch, C.byref(w), e)
        put("fft", kind, int(simple), n, batch, -s if s else w.value, f0 - free())
        lib.cufftDestroy(p)
    cap = Cap(42)
    ONE = list(range(1, 40)) + [48, 50, 64, 81, 96, 97, 100, 101, 121, 125, 127, 128, 169, 192, 200, 243, 250, 251, 255, 256, 257, 300, 320, 343, 360, 400, 480, 500, 512, 513, 600, 625, 640, 720, 729, 750, 768, 800, 882, 960, 997, 1000, 1009, 1023, 1024, 1025, 1200, 1280, 1331, 1500, 1536, 1600, 1920, 2000, 2039, 2048, 2187, 2197, 2400, 2500, 3000, 3072, 3125, 4000, 4093, 4096, 4097, 4800, 5000, 6000, 6144, 6561, 7000, 8000, 8191, 8192, 9000, 10000, 12000, 12288, 15625, 16000, 16384, 16411, 19683, 20000, 22050, 24000, 24576, 30000, 32000, 32768, 40000, 44100, 48000, 50000, 65536, 65537, 80000, 96000, 100000, 131072, 160000, 200000, 262144, 441000, 524288, 1000000, 1048576]
    small = [it for i, it in enumerate(ONE) if i % 4 == 0 or it & (it - 1) == 0]
    for kind in "cri":
        for n in ONE:
            for batch in (1, 7, 64):
                if cap.over(): break
                if n * batch <= 1 << 25: plan(kind, [n], batch, simple=(kind == "c"))
    put("fft_time", "one", time.monotonic() - t_all)
    for kind in "zdjhk":
        for n in small:
            for batch in (1, 64):
                if cap.over(): break
                if n * batch <= 1 << 24: plan(kind, [n], batch, simple=False)
    TWO = [(8, 8), (16, 16), (28, 28), (32, 32), (50, 50), (56, 56), (64, 64), (64, 65), (97, 97), (100, 100), (112, 112), (128, 128), (128, 256), (200, 300), (224, 224), (240, 320), (256, 256), (255, 257), (384, 384), (480, 640), (512, 512), (720, 720), (1000, 1000), (1024, 1024), (2048, 2048), (640, 368), (37, 1024), (1024, 37)]
    for kind in "cri":
        for n in TWO:
            for batch in (1, 3, 32, 256):
                if cap.over(): break
                if n[0] * n[1] * batch <= 1 << 24: plan(kind, list(n), batch, simple=(kind == "c")); 
    for kind in "cri":
        for n in [(4, 4, 4), (16, 16, 16), (20, 24, 30), (32, 32, 32), (64, 64, 64), (50, 60, 70), (128, 128, 128), (97, 16, 16)]:
            for batch in (1, 4):
                if cap.over(): break
                plan(kind, list(n), batch, simple=(kind == "c"))
    r = random.Random(11)
    for _ in range(4000):
        if cap.over(): break
        n = [r.choice(ONE[20:110])] if r.random() < .6 else [r.choice(ONE[5:70]), r.choice(ONE[5:70])]
        b = r.choice((1, 2, 3, 5, 8, 16, 30, 32, 64, 100, 128, 256, 512, 1000))
        size = b
        for it in n: size *= it
        if size <= 1 << 24: plan(r.choice("ccrriizdjh"), n, b, simple=False)

# ---------------------------------------------------------------- cuSPARSE
def sparse_section():
    lib = library("libcusparse.so.12")
    handle = P(); s = lib.cusparseCreate(C.byref(handle)); put("sparse_create", s)
    one, zero = (C.c_double * 2)(1, 0), (C.c_double * 2)(0, 0)
    f1, f0 = (C.c_float * 2)(1, 0), (C.c_float * 2)(0, 0)
    csr, coo, dm, dv = lib.cusparseCreateCsr, lib.cusparseCreateCoo, lib.cusparseCreateDnMat, lib.cusparseCreateDnVec
    csr.argtypes = [P, L, L, L, P, P, P, I, I, I, I]; coo.argtypes = [P, L, L, L, P, P, P, I, I, I]
    dm.argtypes = [P, L, L, L, P, I, I]; dv.argtypes = [P, L, P, I]
    lib.cusparseSpMM_bufferSize.argtypes = [P, I, I, P, P, P, P, P, I, I, P]; lib.cusparseSpMV_bufferSize.argtypes = [P, I, P, P, P, P, P, I, I, P]
    lib.cusparseSDDMM_bufferSize.argtypes = [P, I, I, P, P, P, P, P, I, I, P]
    big = torch.zeros(256 << 20, dtype=torch.uint8, device=DEV); q = big.data_ptr()
    cap = Cap(8)
    for vt in (0, 1, 2, 14):
        ct = vt if vt in (0, 1) else 0
        al, be = (one, zero) if ct == 1 else (f1, f0)
        for it in (2, 3):
            for m, k, n, nnz in [(10, 10, 4, 20), (100, 100, 16, 500), (1000, 500, 64, 5000), (1000, 1000, 128, 50000), (2708, 2708, 16, 10556), (10000, 10000, 256, 100000), (50000, 1000, 32, 200000), (100000, 100000, 64, 1000000), (1000, 1000, 1, 5000), (333, 777, 55, 1234), (169343, 169343, 128, 1166243), (20000, 30000, 300, 65536)]:
                if cap.over(): break
                a, o, b, c, x, y = P(), P(), P(), P(), P(), P()
                csr(C.byref(a), m, k, nnz, q, q, q, it, it, 0, vt); coo(C.byref(o), m, k, nnz, q, q, q, it, 0, vt)
                dm(C.byref(b), k, n, n, q, vt, 2); dm(C.byref(c), m, n, n, q, vt, 2); bc, cc = P(), P(); dm(C.byref(bc), k, n, k, q, vt, 1); dm(C.byref(cc), m, n, m, q, vt, 1)
                dv(C.byref(x), k, q, vt); dv(C.byref(y), m, q, vt)
                row = []
                for mat in (a, o):
                    for layout in ((b, c), (bc, cc)):
                        for alg in (0, 1, 2, 3, 4, 5, 6, 12):
                            w = Z(0); s = lib.cusparseSpMM_bufferSize(handle, 0, 0, al, mat, layout[0], be, layout[1], ct, alg, C.byref(w)); row.append(-s if s else w.value)
                    for alg in (0, 1, 2, 3, 4):
                        w = Z(0); s = lib.cusparseSpMV_bufferSize(handle, 0, al, mat, x, be, y, ct, alg, C.byref(w)); row.append(-s if s else w.value)
                w = Z(0); d1, d2 = P(), P(); dm(C.byref(d1), m, 32, 32, q, vt, 2); dm(C.byref(d2), 32, k, k, q, vt, 2)
                s = lib.cusparseSDDMM_bufferSize(handle, 0, 0, al, d1, d2, be, a, ct, 0, C.byref(w)); row.append(-s if s else w.value)
                put("sparse", vt, it, m, k, n, nnz, row)
    g = lib.cusparseXcoosort_bufferSizeExt; g.argtypes = [P, I, I, I, P, P, P]; h = lib.cusparseXcsrsort_bufferSizeExt; h.argtypes = [P, I, I, I, P, P, P]
    for m, k, nnz in [(10, 10, 20), (100, 50, 500), (1000, 1000, 5000), (2708, 2708, 10556), (50000, 1000, 200000), (100000, 100000, 1000000), (333, 777, 1234)]:
        w, v = Z(0), Z(0); s = g(handle, m, k, nnz, q, q, C.byref(w)); s2 = h(handle, m, k, nnz, q, q, C.byref(v)); put("sparse_sort", m, k, nnz, -s if s else w.value, -s2 if s2 else v.value)

# ---------------------------------------------------------------- torch's own calls, as the allocator saw them
def ops_section():
    torch.manual_seed(0)
    OPS = {}
    def op(name):
        def keep(f): OPS[name] = f; return f
        return keep
    def rnd(*s, **k): return torch.randn(*s, device=DEV, **k)
    # rnn
    def rnn(kind, inp, hid, layers, batch, seq, dtype=torch.float32, amp=None, train=True, packed=False, batch_first=False, **k):
        def run():
            m = getattr(nn, kind)(inp, hid, layers, batch_first=batch_first, **k).to(DEV, dtype); m.train(train)
            x = rnd(batch, seq, inp) if batch_first else rnd(seq, batch, inp); x = x.to(dtype)
            if packed: x = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([max(1, seq - 3 * i) for i in range(batch)]), batch_first=batch_first)
            with torch.autocast("cuda", amp, enabled=amp is not None), torch.set_grad_enabled(train):
                for _ in range(2):
                    y = m(x)[0]
                    if packed: y = nn.utils.rnn.pad_packed_sequence(y, batch_first=batch_first)[0]
                    if train: y.float().sum().backward()
        return run
    for kind in ("LSTM", "GRU", "RNN"):
        OPS[f"rnn {kind} f"] = rnn(kind, 128, 256, 1, 32, 64)
        OPS[f"rnn {kind} f 2 bi drop"] = rnn(kind, 100, 200, 2, 20, 35, bidirectional=True, dropout=.3)
        OPS[f"rnn {kind} f16"] = rnn(kind, 128, 256, 1, 64, 50, torch.float16)
        OPS[f"rnn {kind} f16 3"] = rnn(kind, 100, 300, 3, 64, 50, torch.float16, dropout=.5)
        OPS[f"rnn {kind} bf16"] = rnn(kind, 128, 512, 1, 32, 50, torch.bfloat16)
        OPS[f"rnn {kind} amp16"] = rnn(kind, 64, 96, 2, 16, 100, amp=torch.float16)
        OPS[f"rnn {kind} ampbf16"] = rnn(kind, 64, 96, 2, 16, 100, amp=torch.bfloat16)
        OPS[f"rnn {kind} eval"] = rnn(kind, 128, 256, 2, 32, 64, train=False, bidirectional=True)
        OPS[f"rnn {kind} eval16"] = rnn(kind, 128, 256, 1, 32, 64, torch.float16, train=False)
        OPS[f"rnn {kind} packed"] = rnn(kind, 128, 256, 2, 16, 64, packed=True, batch_first=True, bidirectional=True)
        OPS[f"rnn {kind} packed16"] = rnn(kind, 128, 256, 1, 16, 64, torch.float16, packed=True)
        OPS[f"rnn {kind} nobias"] = rnn(kind, 40, 72, 2, 8, 30, bias=False)
        OPS[f"rnn {kind} bf first"] = rnn(kind, 40, 72, 2, 8, 30, batch_first=True)
        OPS[f"rnn {kind} f64"] = rnn(kind, 40, 72, 2, 8, 30, torch.float64)
    OPS["rnn LSTM proj"] = rnn("LSTM", 128, 256, 2, 16, 40, proj_size=64)
    OPS["rnn LSTM proj bi"] = rnn("LSTM", 128, 256, 2, 16, 40, proj_size=64, bidirectional=True)
    OPS["rnn relu"] = rnn("RNN", 40, 72, 2, 8, 30, nonlinearity="relu")
    def cell(kind):
        def run():
            m = getattr(nn, kind)(64, 128).to(DEV); x = rnd(32, 64); h = None
            for _ in range(3): h = m(x, h)
            (h[0] if isinstance(h, tuple) else h).sum().backward()
        return run
    for kind in ("LSTMCell", "GRUCell", "RNNCell"): OPS[f"cell {kind}"] = cell(kind)
    def ctc(t, b, a, l, cudnn):
        def run():
            x = rnd(t, b, a, requires_grad=True).log_softmax(2)
            if cudnn: loss = F.ctc_loss(x, torch.randint(1, a, (b * l,), dtype=torch.int32, device=DEV), torch.full((b,), t, dtype=torch.int32), torch.full((b,), l, dtype=torch.int32), blank=0)
            else: loss = F.ctc_loss(x, torch.randint(1, a, (b, l), device=DEV), torch.full((b,), t), torch.full((b,), l), blank=0)
            loss.backward()
        return run
    for a in ((50, 16, 20, 10), (120, 32, 37, 25), (200, 4, 80, 60)):
        OPS[f"ctc {a} cudnn"] = ctc(*a, True); OPS[f"ctc {a} native"] = ctc(*a, False)
    # fft
    T = torch
    for n, f in {
        "fft 1k": lambda: T.fft.fft(rnd(64, 1000)), "fft 1021": lambda: T.fft.fft(rnd(16, 1021)), "rfft": lambda: T.fft.rfft(rnd(32, 4096)), "irfft": lambda: T.fft.irfft(rnd(32, 2049, dtype=T.complex64)),
        "fft2": lambda: T.fft.fft2(rnd(8, 3, 64, 64)), "rfft2": lambda: T.fft.rfft2(rnd(8, 32, 56, 56)), "irfft2": lambda: T.fft.irfft2(rnd(8, 32, 56, 29, dtype=T.complex64), s=(56, 56)), "fftn": lambda: T.fft.fftn(rnd(2, 24, 20, 16), dim=(1, 2, 3)),
        "fft dim0": lambda: T.fft.fft(rnd(512, 64), dim=0), "fft dim1": lambda: T.fft.fft(rnd(4, 300, 64), dim=1), "rfft dim1": lambda: T.fft.rfft(rnd(4, 300, 64), dim=1), "irfft dim1": lambda: T.fft.irfft(rnd(4, 151, 64, dtype=T.complex64), n=300, dim=1),
        "fft half": lambda: T.fft.fft(rnd(8, 1024).half()), "rfft f64": lambda: T.fft.rfft(rnd(8, 1000, dtype=T.float64)), "hfft": lambda: T.fft.hfft(rnd(8, 129, dtype=T.complex64)), "fft 1M": lambda: T.fft.fft(rnd(1 << 20, dtype=T.complex64)),
        "stft": lambda: T.stft(rnd(8, 16000), 400, 160, window=T.hann_window(400, device=DEV), return_complex=True), "istft": lambda: T.istft(T.stft(rnd(8, 16000), 512, 128, window=T.hann_window(512, device=DEV), return_complex=True), 512, 128, window=T.hann_window(512, device=DEV)),
        "rfft bwd": lambda: T.fft.rfft(rnd(16, 512, requires_grad=True), norm="ortho").abs().sum().backward(), "rfft2 bwd": lambda: T.fft.irfft2(T.fft.rfft2(rnd(4, 16, 32, 32, requires_grad=True))).sum().backward(),
        "rfft3": lambda: T.fft.rfftn(rnd(2, 8, 16, 16, 16), dim=(2, 3, 4)), "irfft3": lambda: T.fft.irfftn(rnd(2, 8, 16, 16, 9, dtype=T.complex64), dim=(2, 3, 4)),
    }.items(): OPS[f"fft {n}"] = f
    # linalg
    def spd(n, *b, dtype=torch.float32):
        a = rnd(*b, n, n, dtype=dtype); return a @ a.mT + n * torch.eye(n, device=DEV, dtype=dtype)
    LA = T.linalg
    sizes = {"": (), "b4": (4,), "b64": (64,)}
    for n in (8, 32, 100, 512, 1024):
        for tag, b in sizes.items():
            if n > 512 and b: continue
            if n > 100 and tag == "b64": continue
            for name, f in {
                "cholesky": lambda n, b: LA.cholesky(spd(n, *b)), "cholesky_ex inv": lambda n, b: T.cholesky_inverse(LA.cholesky(spd(n, *b))), "cholesky_solve": lambda n, b: T.cholesky_solve(rnd(*b, n, 3), LA.cholesky(spd(n, *b))),
                "inv": lambda n, b: LA.inv(spd(n, *b)), "solve": lambda n, b: LA.solve(spd(n, *b), rnd(*b, n, 5)), "solve vec": lambda n, b: LA.solve(spd(n, *b), rnd(*b, n)), "det": lambda n, b: LA.det(spd(n, *b)), "slogdet": lambda n, b: LA.slogdet(spd(n, *b)),
                "lu": lambda n, b: LA.lu(spd(n, *b)), "lu_factor": lambda n, b: LA.lu_factor(spd(n, *b)), "lu_solve": lambda n, b: LA.lu_solve(*LA.lu_factor(spd(n, *b)), rnd(*b, n, 3)), "qr": lambda n, b: LA.qr(rnd(*b, n + 7, n)), "qr complete": lambda n, b: LA.qr(rnd(*b, n + 7, n), mode="complete"), "qr r": lambda n, b: LA.qr(rnd(*b, n, n), mode="r"),
                "svd": lambda n, b: LA.svd(rnd(*b, n, n), full_matrices=False), "svd tall": lambda n, b: LA.svd(rnd(*b, 2 * n, n), full_matrices=False), "svd full": lambda n, b: LA.svd(rnd(*b, n, 2 * n)), "svdvals": lambda n, b: LA.svdvals(rnd(*b, n, n + 3)),
                "svd gesvd": lambda n, b: LA.svd(rnd(*b, n, n), driver="gesvd"), "svd gesvda": lambda n, b: LA.svd(rnd(*b, n, n), driver="gesvda", full_matrices=False),
                "eigh": lambda n, b: LA.eigh(spd(n, *b)), "eigvalsh": lambda n, b: LA.eigvalsh(spd(n, *b)), "eig": lambda n, b: LA.eig(rnd(*b, n, n)), "eigvals": lambda n, b: LA.eigvals(rnd(*b, n, n)),
                "pinv": lambda n, b: LA.pinv(rnd(*b, n, n)), "matrix_rank": lambda n, b: LA.matrix_rank(rnd(*b, n, n)), "lstsq": lambda n, b: LA.lstsq(rnd(*b, n + 5, n), rnd(*b, n + 5, 2)), "matrix_exp": lambda n, b: LA.matrix_exp(rnd(*b, n, n) / n), "solve_triangular": lambda n, b: LA.solve_triangular(spd(n, *b).tril(), rnd(*b, n, 3), upper=False),
                "householder": lambda n, b: LA.householder_product(*T.geqrf(rnd(*b, n, n))), "ormqr": lambda n, b: T.ormqr(*T.geqrf(rnd(n, n)), rnd(n, 4)), "ldl": lambda n, b: LA.ldl_factor(spd(n, *b)), "norm nuc": lambda n, b: LA.matrix_norm(rnd(*b, n, n), "nuc"), "norm 2": lambda n, b: LA.matrix_norm(rnd(*b, n, n), 2), "cond": lambda n, b: LA.cond(rnd(*b, n, n)),
                "inv64": lambda n, b: LA.inv(spd(n, *b, dtype=T.float64)), "eigh64": lambda n, b: LA.eigh(spd(n, *b, dtype=T.float64)), "svd64": lambda n, b: LA.svd(rnd(*b, n, n, dtype=T.float64)), "cholesky64": lambda n, b: LA.cholesky(spd(n, *b, dtype=T.float64)),
                "bwd solve": lambda n, b: LA.solve(spd(n, *b).requires_grad_(), rnd(*b, n, 5)).sum().backward(), "bwd inv": lambda n, b: LA.inv(spd(n, *b).requires_grad_()).sum().backward(), "bwd chol": lambda n, b: LA.cholesky(spd(n, *b).requires_grad_()).sum().backward(), "bwd eigh": lambda n, b: LA.eigh(spd(n, *b).requires_grad_())[0].sum().backward(), "bwd svd": lambda n, b: LA.svd(rnd(*b, n, n, requires_grad=True), full_matrices=False)[1].sum().backward(), "bwd qr": lambda n, b: LA.qr(rnd(*b, n + 7, n, requires_grad=True))[0].sum().backward(), "bwd slogdet": lambda n, b: LA.slogdet(spd(n, *b).requires_grad_())[1].sum().backward(),
            }.items():
                if n == 1024 and name in ("eig", "eigvals", "cond"): continue
                OPS[f"la {name} {n} {tag}"] = (lambda f, n, b: lambda: f(n, b))(f, n, b)
    OPS["la lobpcg"] = lambda: T.lobpcg(spd(64), k=3, niter=2)
    OPS["la svd_lowrank"] = lambda: T.svd_lowrank(rnd(200, 100), q=6); OPS["la pca_lowrank"] = lambda: T.pca_lowrank(rnd(200, 100), q=6)
    OPS["la orthogonal"] = lambda: nn.init.orthogonal_(T.empty(256, 128, device=DEV)); OPS["la orthogonal param"] = lambda: nn.utils.parametrizations.orthogonal(nn.Linear(64, 32).to(DEV))(rnd(4, 64)).sum().backward(); OPS["la mvn"] = lambda: T.distributions.MultivariateNormal(T.zeros(16, device=DEV), spd(16)).rsample((100,)); OPS["la cov"] = lambda: T.cov(rnd(20, 100))
    # sparse
    def coo(m, k, nnz, coalesce=True):
        g = T.Generator().manual_seed(1); i = T.stack([T.randint(0, m, (nnz,), generator=g), T.randint(0, k, (nnz,), generator=g)]).to(DEV)
        s = T.sparse_coo_tensor(i, T.ones(nnz, device=DEV), (m, k)); return s.coalesce() if coalesce else s
    def csr(m, k, per):
        i = T.arange(0, (m + 1) * per, per); c = (T.arange(m)[:, None] % (k // per) + T.arange(per)[None] * (k // per)).flatten()
        return T.sparse_csr_tensor(i.to(DEV), c.to(DEV), T.ones(m * per, device=DEV), (m, k))
    def spgrad():
        e = nn.Embedding(5000, 64, sparse=True).to(DEV); o = T.optim.SparseAdam(e.parameters())
        for _ in range(2): o.zero_grad(); e(T.randint(0, 5000, (32, 20), device=DEV)).sum().backward(); o.step()
    for n, f in {
        "coo mm": lambda: T.sparse.mm(coo(1000, 500, 6000), rnd(500, 64)), "coo mm bwd": lambda: T.sparse.mm(coo(1000, 500, 6000), rnd(500, 64, requires_grad=True)).sum().backward(), "coo coalesce": lambda: coo(1000, 500, 6000, False).coalesce(), "coo mv": lambda: T.mv(coo(1000, 500, 6000), rnd(500)), "coo@coo": lambda: T.sparse.mm(coo(300, 200, 900), coo(200, 300, 900)), "coo add": lambda: coo(300, 200, 900) + coo(300, 200, 900), "coo dense": lambda: coo(300, 200, 900).to_dense(), "to_sparse": lambda: T.eye(200, device=DEV).to_sparse(), "coo sum": lambda: T.sparse.sum(coo(300, 200, 900), 0), "coo softmax": lambda: T.sparse.softmax(coo(300, 200, 900), 1), "coo bmm": lambda: T.bmm(T.stack([T.eye(64, device=DEV)] * 4).to_sparse(), rnd(4, 64, 8)),
        "csr mm": lambda: csr(1000, 500, 6) @ rnd(500, 64), "csr mm 2": lambda: csr(20000, 20000, 9) @ rnd(20000, 128), "csr mm bwd": lambda: (csr(1000, 500, 6) @ rnd(500, 64, requires_grad=True)).sum().backward(), "csr mv": lambda: csr(1000, 500, 6) @ rnd(500), "csr@csr": lambda: csr(300, 200, 5) @ csr(200, 300, 5), "csr dense": lambda: csr(300, 200, 5).to_dense(), "to csr": lambda: T.eye(200, device=DEV).to_sparse_csr(), "csr add": lambda: csr(300, 200, 5) + csr(300, 200, 5), "coo to csr": lambda: coo(300, 200, 900).to_sparse_csr(), "sampled_addmm": lambda: T.sparse.sampled_addmm(csr(300, 200, 5), rnd(300, 32), rnd(32, 200)), "embedding": spgrad, "bag": lambda: nn.EmbeddingBag(5000, 64).to(DEV)(T.randint(0, 5000, (32, 20), device=DEV)).sum().backward(), "bag sparse": lambda: nn.EmbeddingBag(5000, 64, sparse=True).to(DEV)(T.randint(0, 5000, (32, 20), device=DEV)).sum().backward(), "csr solve": lambda: T.triangular_solve(rnd(64, 3), T.eye(64, device=DEV).to_sparse_csr(), upper=False), "spsolve": lambda: T.sparse.spsolve(T.eye(64, device=DEV).to_sparse_csr(), rnd(64)), "bsr": lambda: T.eye(256, device=DEV).to_sparse_bsr((16, 16)) @ rnd(256, 32),
    }.items(): OPS[f"sp {n}"] = f
    # sort and its kin
    ints = lambda hi, *s: T.randint(0, hi, s, device=DEV)
    for n, f in {
        "sort 100": lambda: rnd(100).sort(), "sort 5k": lambda: rnd(5000).sort(), "sort 1M": lambda: rnd(1 << 20).sort(), "sort rows": lambda: rnd(512, 1000).sort(-1), "sort rows 5k": lambda: rnd(64, 5000).sort(dim=-1, stable=True), "sort dim0": lambda: rnd(1000, 64).sort(0), "sort 3d": lambda: rnd(8, 300, 60).sort(1, descending=True), "sort long": lambda: ints(1000, 100000).sort(), "sort half": lambda: rnd(100000).half().sort(), "argsort": lambda: rnd(64, 4096).argsort(-1), "sort small rows": lambda: rnd(10000, 30).sort(-1), "sort bool": lambda: (rnd(10000) > 0).sort(), "msort": lambda: T.msort(rnd(300, 50)),
        "topk 5": lambda: rnd(64, 1000).topk(5), "topk 50": lambda: rnd(8, 50257).topk(50), "topk big": lambda: rnd(1, 1 << 20).topk(1000), "topk k2k": lambda: rnd(4, 20000).topk(2000), "topk experts": lambda: rnd(4096, 8).softmax(-1).topk(2), "topk unsorted": lambda: rnd(16, 8192).topk(100, sorted=False), "topk 1d": lambda: rnd(100000).topk(300), "topk dim1": lambda: rnd(8, 3000, 4).topk(100, dim=1), "topk half": lambda: rnd(64, 1000).half().topk(5),
        "kthvalue": lambda: rnd(64, 1000).kthvalue(5), "median": lambda: rnd(10000).median(), "median dim": lambda: rnd(64, 1000).median(1), "quantile": lambda: rnd(64, 1000).quantile(.9, dim=1), "mode": lambda: ints(10, 64, 100).mode(), "unique": lambda: ints(100, 10000).unique(), "unique inv": lambda: ints(100, 10000).unique(return_inverse=True, return_counts=True), "unique dim": lambda: ints(3, 1000, 2).unique(dim=0), "unique_consecutive": lambda: ints(3, 1000).unique_consecutive(), "unique small": lambda: ints(10, 50).unique(),
        "nonzero": lambda: (rnd(1000) > 0).nonzero(), "nonzero 2d": lambda: (rnd(300, 400) > 0).nonzero(), "nonzero tuple": lambda: (rnd(300, 400) > 0).nonzero(as_tuple=True), "nonzero big": lambda: (rnd(1 << 22) > 0).nonzero(), "masked_select": lambda: rnd(1000, 30).masked_select(rnd(1000, 30) > 0), "bool index": lambda: (lambda x: x[x > 0])(rnd(1000, 30)), "bool index rows": lambda: rnd(1000, 30)[rnd(1000) > 0], "bool assign": lambda: (lambda x: x.__setitem__(x > 0, 0.0))(rnd(1000, 30)), "argwhere": lambda: T.argwhere(rnd(100, 30) > 0), "where1": lambda: T.where(rnd(100, 30) > 0),
        "multinomial": lambda: rnd(64, 1000).softmax(-1).multinomial(1), "multinomial 10": lambda: rnd(64, 1000).softmax(-1).multinomial(10), "multinomial rep": lambda: rnd(64, 1000).softmax(-1).multinomial(10, replacement=True), "multinomial 1d": lambda: rnd(5000).softmax(-1).multinomial(100), "categorical": lambda: T.distributions.Categorical(logits=rnd(256, 6)).sample(), "bincount": lambda: T.bincount(ints(100, 5000)), "bincount w": lambda: T.bincount(ints(100, 5000), weights=rnd(5000), minlength=200), "histc": lambda: rnd(10000).histc(100), "histogram": lambda: T.histc(rnd(1000), 10, -1, 1),
        "cumsum": lambda: rnd(64, 5000).cumsum(1), "cumsum 1d": lambda: rnd(1 << 20).cumsum(0), "cumsum dim0": lambda: rnd(5000, 64).cumsum(0), "cumprod": lambda: rnd(64, 500).cumprod(1), "cumprod 1d": lambda: rnd(100000).cumprod(0), "logcumsumexp": lambda: rnd(64, 500).logcumsumexp(1), "logcumsumexp 1d": lambda: rnd(100000).logcumsumexp(0), "cummax": lambda: rnd(64, 500).cummax(1), "cumsum int": lambda: ints(5, 100000).cumsum(0), "cumsum bwd": lambda: rnd(8, 128, 64, requires_grad=True).cumsum(1).sum().backward(), "cumprod bwd": lambda: (rnd(8, 128, requires_grad=True).cumprod(1).sum()).backward(),
        "searchsorted": lambda: T.searchsorted(T.arange(100., device=DEV), rnd(1000)), "randperm 100": lambda: T.randperm(100, device=DEV), "randperm 50k": lambda: T.randperm(50000, device=DEV), "randperm 1M": lambda: T.randperm(1 << 20, device=DEV), "isin": lambda: T.isin(ints(100, 1000), ints(100, 10)), "repeat_interleave": lambda: rnd(100, 8).repeat_interleave(T.full((100,), 3, device=DEV), 0), "one_hot": lambda: F.one_hot(ints(10, 1000), 10), "one_hot auto": lambda: F.one_hot(ints(10, 1000)), "argmax": lambda: rnd(64, 1000).argmax(1), "max all": lambda: rnd(1 << 22).max(), "sum all": lambda: rnd(1 << 24).sum(), "var all": lambda: rnd(1 << 22).var(), "norm all": lambda: rnd(1 << 22).norm(), "sum dim0": lambda: rnd(100000, 16).sum(0), "mean dim": lambda: rnd(32, 64, 56, 56).mean((0, 2, 3)), "any": lambda: (rnd(1 << 22) > 0).any(), "item": lambda: rnd(1000).sum().item(), "allclose": lambda: T.allclose(rnd(1000), rnd(1000)), "equal": lambda: T.equal(rnd(1000), rnd(1000)),
        "index_put acc": lambda: rnd(1000, 16).index_put_((ints(1000, 5000),), rnd(5000, 16), accumulate=True), "index bwd": lambda: rnd(1000, 16, requires_grad=True)[ints(1000, 5000)].sum().backward(), "gather bwd": lambda: rnd(1000, 16, requires_grad=True).gather(1, ints(16, 1000, 4)).sum().backward(), "index_add": lambda: rnd(1000, 16).index_add_(0, ints(1000, 5000), rnd(5000, 16)), "index_select bwd": lambda: rnd(1000, 16, requires_grad=True).index_select(0, ints(1000, 5000)).sum().backward(), "scatter_add": lambda: rnd(1000, 16).scatter_add_(0, ints(1000, 5000, 16), rnd(5000, 16)), "scatter_reduce": lambda: rnd(1000, 16).scatter_reduce_(0, ints(1000, 5000, 16), rnd(5000, 16), "amax"), "segment_reduce": lambda: T.segment_reduce(rnd(100, 8), "sum", lengths=T.full((10,), 10, device=DEV)), "emb bwd": lambda: F.embedding(ints(5000, 64, 128), rnd(5000, 64, requires_grad=True)).sum().backward(), "emb bwd small": lambda: F.embedding(ints(5000, 4, 20), rnd(5000, 64, requires_grad=True)).sum().backward(), "emb bwd pad": lambda: F.embedding(ints(5000, 64, 128), rnd(5000, 64, requires_grad=True), padding_idx=0, scale_grad_by_freq=True).sum().backward(), "index_reduce": lambda: rnd(100, 8).index_reduce_(0, ints(100, 50), rnd(50, 8), "mean"), "take": lambda: rnd(1000).take(ints(1000, 100)), "put": lambda: rnd(1000).put_(ints(1000, 100), rnd(100)), "tril_indices": lambda: T.tril_indices(64, 64, device=DEV), "cdist": lambda: T.cdist(rnd(200, 30, requires_grad=True), rnd(300, 30)).sum().backward(), "pdist": lambda: F.pdist(rnd(100, 8)), "cartesian": lambda: T.cartesian_prod(T.arange(10, device=DEV), T.arange(10, device=DEV)), "combinations": lambda: T.combinations(T.arange(20, device=DEV)), "trapz": lambda: T.trapz(rnd(64, 100)), "unfold": lambda: F.unfold(rnd(4, 8, 32, 32, requires_grad=True), 3).sum().backward(), "fold": lambda: F.fold(rnd(4, 72, 900), (32, 32), 3), "grid_sample": lambda: F.grid_sample(rnd(4, 8, 32, 32, requires_grad=True), rnd(4, 16, 16, 2), align_corners=False).sum().backward(), "interpolate": lambda: F.interpolate(rnd(4, 8, 32, 32, requires_grad=True), scale_factor=2, mode="bilinear").sum().backward(), "max_pool": lambda: F.max_pool2d(rnd(4, 8, 32, 32, requires_grad=True), 2).sum().backward(), "adaptive": lambda: F.adaptive_avg_pool2d(rnd(4, 8, 33, 33, requires_grad=True), 7).sum().backward(), "nll2d": lambda: F.cross_entropy(rnd(4, 8, 32, 32, requires_grad=True), ints(8, 4, 32, 32)).backward(), "dropout": lambda: F.dropout(rnd(1000, requires_grad=True)).sum().backward(), "lnorm": lambda: F.layer_norm(rnd(64, 512, requires_grad=True), (512,), rnd(512, requires_grad=True), rnd(512, requires_grad=True)).sum().backward(), "gnorm": lambda: F.group_norm(rnd(8, 64, 16, 16, requires_grad=True), 8, rnd(64, requires_grad=True)).sum().backward(), "bnorm": lambda: F.batch_norm(rnd(8, 64, 16, 16, requires_grad=True), None, None, rnd(64, requires_grad=True), rnd(64, requires_grad=True), training=True).sum().backward(), "rms": lambda: F.rms_norm(rnd(64, 512, requires_grad=True), (512,), rnd(512, requires_grad=True)).sum().backward(), "gumbel": lambda: F.gumbel_softmax(rnd(64, 100)), "nested": lambda: T.nested.nested_tensor([rnd(5, 8), rnd(3, 8)]).to_padded_tensor(0.), "jagged": lambda: T.nested.nested_tensor([rnd(5, 8), rnd(3, 8)], layout=T.jagged), "grouped_mm": lambda: T._grouped_mm(rnd(64, 64).bfloat16(), rnd(4, 64, 64).bfloat16(), offs=T.tensor([16, 32, 48, 64], device=DEV, dtype=T.int32)), "scaled_mm": lambda: T._scaled_mm(rnd(64, 64).to(T.float8_e4m3fn), rnd(64, 64).to(T.float8_e4m3fn).t(), T.ones((), device=DEV), T.ones((), device=DEV), out_dtype=T.bfloat16), "int_mm": lambda: T._int_mm(ints(5, 64, 64).to(T.int8), ints(5, 64, 64).to(T.int8)), "weight_norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(64, 32).to(DEV))(rnd(4, 64)).sum().backward(), "spectral_norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(64, 32).to(DEV))(rnd(4, 64)).sum().backward(), "clip_grad": lambda: nn.utils.clip_grad_norm_([nn.Parameter(rnd(100))], 1.0), "complex mm": lambda: rnd(64, 64, dtype=T.complex64) @ rnd(64, 64, dtype=T.complex64), "baddbmm": lambda: T.baddbmm(rnd(8, 64, 64), rnd(8, 64, 32), rnd(8, 32, 64)), "einsum": lambda: T.einsum("bij,bjk,kl->bil", rnd(4, 8, 16), rnd(4, 16, 32), rnd(32, 5)), "bilinear": lambda: nn.Bilinear(20, 30, 40).to(DEV)(rnd(16, 20), rnd(16, 30)).sum().backward(), "addmm gelu": lambda: F.gelu(F.linear(rnd(64, 64), rnd(128, 64), rnd(128))), "linear bf16 bias": lambda: F.linear(rnd(64, 64, requires_grad=True).bfloat16(), rnd(128, 64, requires_grad=True).bfloat16(), rnd(128, requires_grad=True).bfloat16()).sum().backward(), "mse f64": lambda: F.mse_loss(rnd(100, dtype=T.float64, requires_grad=True), rnd(100, dtype=T.float64)).backward(),
    }.items(): OPS[f"op {n}"] = f
    try:
        import torchvision.ops as V
        OPS["tv nms"] = lambda: V.nms(rnd(1000, 4).abs().cumsum(1), rnd(1000), .5)
        OPS["tv roi_align"] = lambda: V.roi_align(rnd(2, 16, 50, 50, requires_grad=True), [T.rand(30, 4, device=DEV).cumsum(1) * 10, T.rand(20, 4, device=DEV).cumsum(1) * 10], (7, 7)).sum().backward()
        OPS["tv deform"] = lambda: V.deform_conv2d(rnd(2, 8, 16, 16, requires_grad=True), rnd(2, 18, 14, 14), rnd(4, 8, 3, 3, requires_grad=True)).sum().backward()
    except ImportError: pass
    # attention
    def sdpa(dtype, b=2, h=8, kv=None, s=256, t=None, d=64, bwd=True, mask=None, **k):
        def run():
            t2 = t or s
            q = rnd(b, h, s, d).to(dtype).requires_grad_(bwd); key = rnd(b, kv or h, t2, d).to(dtype).requires_grad_(bwd); v = rnd(b, kv or h, t2, d).to(dtype).requires_grad_(bwd)
            m = None
            if mask == "bool": m = torch.ones(b, 1, s, t2, dtype=torch.bool, device=DEV).tril()
            if mask == "float": m = torch.zeros(b, h, s, t2, device=DEV, dtype=dtype)
            if mask == "grad": m = torch.zeros(1, h, s, t2, device=DEV, dtype=dtype, requires_grad=True)
            y = F.scaled_dot_product_attention(q, key, v, attn_mask=m, **k)
            if bwd: y.sum().backward()
        return run
    for dn, dt in (("f32", torch.float32), ("f16", torch.float16), ("bf16", torch.bfloat16), ("f64", torch.float64)):
        for n, k in {"plain": {}, "causal": dict(is_causal=True), "drop": dict(dropout_p=.1), "causal drop": dict(is_causal=True, dropout_p=.1), "bool": dict(mask="bool"), "float": dict(mask="float"), "gradmask": dict(mask="grad"), "eval": dict(bwd=False), "gqa": dict(kv=2, enable_gqa=True), "gqa causal": dict(kv=2, enable_gqa=True, is_causal=True), "d80": dict(d=80), "d96": dict(d=96), "d128": dict(d=128), "d40": dict(d=40), "d256": dict(d=256), "d17": dict(d=17), "cross": dict(t=100), "s1": dict(s=1, t=300, bwd=False), "odd": dict(s=197), "long": dict(s=2048, b=1), "b1h1": dict(b=1, h=1, s=4096, d=512), "float drop": dict(mask="float", dropout_p=.2)}.items(): OPS[f"sdpa {dn} {n}"] = sdpa(dt, **k)
    OPS["sdpa mha"] = lambda: nn.MultiheadAttention(256, 8, batch_first=True).to(DEV)(rnd(4, 50, 256), rnd(4, 50, 256), rnd(4, 50, 256))[0].sum().backward()
    def enc(train, pad):
        def run():
            m = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 256, batch_first=True), 2).to(DEV).train(train)
            p = torch.zeros(8, 40, dtype=torch.bool); p[:, 30:] = pad; p = p.to(DEV)
            with torch.set_grad_enabled(train):
                y = m(rnd(8, 40, 128), src_key_padding_mask=p if pad else None)
                if train: y.sum().backward()
        return run
    OPS["sdpa enc train"] = enc(True, False); OPS["sdpa enc eval"] = enc(False, False); OPS["sdpa enc pad"] = enc(True, True); OPS["sdpa enc eval pad"] = enc(False, True)
    # convolutions: nets made by chance
    r = random.Random(21)
    def net(i):
        dim = r.choice((2, 2, 2, 2, 1, 3)); mode = r.choice(("f", "f", "amp16", "ampbf16", "half")); cl = dim == 2 and r.random() < .3; bench = r.random() < .3; double = r.random() < .15 and mode == "f"
        cs = [r.choice((3, 4, 16, 24)), *[r.choice((16, 24, 32, 48, 64, 96, 128)) for _ in range(4)]]; batch = r.choice((1, 2, 4, 8, 16, 30)); size = {1: r.choice((100, 500, 1000)), 2: r.choice((16, 28, 32, 50, 64, 100)), 3: r.choice((8, 12, 16))}[dim]
        spec = [dict(k=r.choice((1, 3, 3, 3, 5, 7)), s=r.choice((1, 1, 2)), t=r.random() < .2, g=r.choice((1, 1, 1, 1, 4, -1)), d=r.choice((1, 1, 1, 2)), b=r.random() < .6, n=r.random() < .6) for _ in range(4)]
        def run():
            mods = []
            for j, it in enumerate(spec):
                a, b = cs[j], cs[j + 1]; g = a if it["g"] == -1 else it["g"]
                if a % g or b % g: g = 1
                conv = getattr(nn, f"Conv{'Transpose' if it['t'] else ''}{dim}d")
                mods.append(conv(a, b, it["k"], it["s"], padding=it["d"] * (it["k"] // 2), dilation=it["d"], groups=g, bias=it["b"]))
                if it["n"]: mods.append(getattr(nn, f"BatchNorm{dim}d")(b))
                mods.append(nn.ReLU())
            m = nn.Sequential(*mods).to(DEV)
            x = rnd(batch, cs[0], *[size] * dim)
            if cl: m = m.to(memory_format=torch.channels_last); x = x.to(memory_format=torch.channels_last)
            if mode == "half": m, x = m.half(), x.half()
            torch.backends.cudnn.benchmark = bench
            try:
                for _ in range(2):
                    with torch.autocast("cuda", torch.float16 if mode == "amp16" else torch.bfloat16, enabled=mode.startswith("amp")):
                        if double:
                            x.requires_grad_(); g, = torch.autograd.grad(m(x).sum(), x, create_graph=True); loss = g.pow(2).sum()
                        else: loss = m(x).float().pow(2).mean()
                    loss.backward()
            finally: torch.backends.cudnn.benchmark = False
        return run
    for i in range(60): OPS[f"conv {i}"] = net(i)
    def graphed():
        m = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).to(DEV); x = rnd(32, 64)
        s = torch.cuda.Stream(); s.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(s):
            for _ in range(2): m(x).sum().backward()
        torch.cuda.current_stream().wait_stream(s)
        g = torch.cuda.CUDAGraph(); m.zero_grad(set_to_none=True)
        with torch.cuda.graph(g): m(x).sum().backward()
        g.replay(); torch.cuda.synchronize()
    OPS["graph capture"] = graphed
    def callables():
        m = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).to(DEV); g = torch.cuda.make_graphed_callables(m, (rnd(32, 64, requires_grad=True),)); g(rnd(32, 64, requires_grad=True)).sum().backward()
    OPS["graph callables"] = callables
    for n, f in {"jacrev": lambda: torch.func.jacrev(lambda x: (x @ x.T).sum(1))(rnd(16, 8)), "vmap grad": lambda: torch.func.vmap(torch.func.grad(lambda w, x: (w * x).sum()), (None, 0))(rnd(16), rnd(32, 16)), "hessian": lambda: torch.func.hessian(lambda x: x.pow(3).sum())(rnd(16))}.items(): OPS[f"func {n}"] = f
    only = tuple(sys.argv[3].split(",")) if len(sys.argv) > 3 else ("",)
    cap = Cap(85 if len(sys.argv) < 4 else 1e9)
    gc.collect(); gc.freeze()
    order = ['rnn', 'cell', 'ctc', 'fft', 'sdpa', 'conv', 'op', 'sp', 'graph', 'tv', 'func', 'la']
    OPS = dict(sorted(OPS.items(), key=lambda it: order.index(it[0].split()[0])))
    for name, f in OPS.items():
        if only and not name.startswith(only): continue
        if cap.over(): put("cut", "ops", name); break
        runs, error, peaks = [], None, []
        gc.collect(); torch.cuda.synchronize(); torch.cuda.empty_cache(); f0 = free()
        for _ in range(2):
            torch.manual_seed(0)
            torch.cuda.memory._record_memory_history(None); torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=20000)
            torch.cuda.reset_peak_memory_stats(); base = torch.cuda.memory_allocated()
            try: f()
            except Exception as e: error = f"{type(e).__name__}: {str(e)[:160]}"
            torch.cuda.synchronize(); gc.collect()
            trace = torch.cuda.memory._snapshot()["device_traces"][0]
            events = []
            for it in trace:
                a = it["action"]
                if a == "alloc": events.append(it["size"])
                elif a == "free_completed": events.append(-it["size"])
                elif a == "segment_alloc": events.append(f"+{it['size'] >> 20}")
                elif a == "segment_free": events.append(f"-{it['size'] >> 20}")
            runs.append(events if len(events) < 4000 else events[:4000]); peaks.append([torch.cuda.max_memory_allocated() - base, torch.cuda.max_memory_reserved()])
        torch.cuda.memory._record_memory_history(None)
        torch.cuda.empty_cache()
        put("op", name, peaks, f0 - free(), error, runs[0], runs[1] if runs[1] != runs[0] else "same")
        OUT.flush()

for name in WANT:
    t0 = time.monotonic()
    try: {"rnn": rnn_section, "solver": solver_section, "fft": fft_section, "sparse": sparse_section, "ops": ops_section}[name]()
    except Exception: put("failed", name, traceback.format_exc()[-1500:])
    put("section", name, round(time.monotonic() - t0, 1)); OUT.flush()
OUT.close()
