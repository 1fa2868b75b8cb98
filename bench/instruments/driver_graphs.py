"""driver_graphs.py [AT_ONCE]: what the driver takes beside PyTorch's allocator; a JSON line for each probe, MiB."""
import json, sys, time
import torch
from driver_probes import Probe, forked
T0 = time.time()


def body(kind, n):
    x = torch.zeros(1024, device="cuda")
    y = torch.zeros(1024, device="cuda")
    if kind == "add":
        return lambda: [x.add_(1.0) for _ in range(n)]
    if kind == "copy":
        return lambda: [x.copy_(y) for _ in range(n)]
    if kind == "memset":
        return lambda: [x.zero_() for _ in range(n)]
    if kind == "foreach":        # a kernel with nearly 4 KiB of arguments
        xs = [torch.zeros(16, device="cuda") for _ in range(60)]
        return lambda: [torch._foreach_add_(xs, 1.0) for _ in range(n)]
    if kind in ("mm", "mm32", "mmbig", "linear"):
        d = torch.float32 if kind == "mm32" else torch.bfloat16
        k = 4096 if kind == "mmbig" else 512
        a, b, c = (torch.zeros(k, k, device="cuda", dtype=d) for _ in range(3))
        if kind == "linear":
            e = torch.zeros(k, device="cuda", dtype=d)
            return lambda: [torch.addmm(e, a, b, out=c) for _ in range(n)]
        return lambda: [torch.mm(a, b, out=c) for _ in range(n)]
    if kind == "mix":            # as a layer of a transformer: half products, half others
        a, b, c = (torch.zeros(512, 512, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        return lambda: [(torch.mm(a, b, out=c), x.add_(1.0)) for _ in range(n // 2)]
    if kind == "branches":       # n kernels on a second stream, forked and joined
        s = torch.cuda.Stream()

        def f():
            cur = torch.cuda.current_stream()
            s.wait_stream(cur)
            with torch.cuda.stream(s):
                for _ in range(n):
                    y.add_(1.0)
            for _ in range(n):
                x.add_(1.0)
            cur.wait_stream(s)
        return f


def capture(f, m, pool, look, marks):
    held, out = [], []
    s = torch.cuda.Stream()
    for i in range(1, m + 1):
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g, pool=pool, stream=s):
            f()
        held.append(g)
        if i in marks:
            out.append([i] + look(f"captured {i}")[1:])
    return held, out


def graphs(kind, n, m):
    def run():
        f = body(kind, n)
        f()
        s = torch.cuda.Stream()
        with torch.cuda.stream(s):
            f()
        look = Probe()
        look("warm")
        pool = torch.cuda.graph_pool_handle()
        marks = {1, 2, 3, 5, 10, 20, 50, 100, 200, 300, 500, 1000, m}
        held, grown = capture(f, m, pool, look, marks)
        out = {"kind": kind, "nodes": n, "graphs": m, "before": look.rows[0][1:], "grown": grown}
        held[0].replay()
        out["one replayed"] = look("replayed")[1:]
        for g in held:
            g.replay()
        out["all replayed"] = look("replayed")[1:]
        del held[len(held) // 2:]
        out["half deleted"] = look("half")[1:]
        held.clear()
        out["deleted"] = look("deleted")[1:]
        held, grown = capture(f, m, pool, look, marks)
        out["again"] = grown[-1][1:]
        return out
    return run


J = [("add", 1, 1000), ("add", 2, 500), ("add", 5, 500), ("add", 8, 1000), ("add", 10, 500), ("add", 20, 500), ("add", 50, 200), ("add", 100, 200), ("add", 200, 100), ("add", 500, 50),
     ("add", 1000, 20), ("add", 2000, 10), ("mm", 1, 500), ("mm", 5, 500), ("mm", 20, 300), ("mm", 100, 100), ("mm", 500, 20), ("mmbig", 20, 100), ("mm32", 20, 300), ("linear", 20, 300),
     ("copy", 1, 500), ("copy", 20, 200), ("copy", 100, 50), ("memset", 20, 200), ("foreach", 1, 500), ("foreach", 20, 200), ("foreach", 100, 50), ("mix", 8, 500), ("mix", 300, 35), ("branches", 10, 200),
     ("branches", 100, 50)]
print(json.dumps({"torch": torch.__version__}), flush=True)
forked([(f"{k} x{n}, {m} graphs", graphs(k, n, m)) for k, n, m in J], int(sys.argv[1]) if len(sys.argv) > 1 else 8)
print(f"seconds {time.time() - T0:.0f}", flush=True)
