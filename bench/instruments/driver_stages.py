"""driver_stages.py [AT_ONCE]: what the driver takes beside PyTorch's allocator; a JSON line for each probe, MiB."""
import ctypes, json, os, sys, time
import torch
from driver_probes import Probe, forked
T0 = time.time()
import torch.nn.functional as F
BF, H = torch.bfloat16, torch.float16


def rnd(*s, dtype=torch.float32):
    return torch.randn(*s, device="cuda").to(dtype)


def ints(hi, *s):
    return torch.randint(0, hi, s, device="cuda")


def sdp(backend, d, dtype=BF, mask=False, s=256):
    from torch.nn.attention import sdpa_kernel, SDPBackend as B
    q = rnd(2, 8, s, d, dtype=dtype)
    m = torch.ones(s, s, dtype=torch.bool, device="cuda") if mask else None
    with sdpa_kernel(getattr(B, backend)):
        F.scaled_dot_product_attention(q, q, q, attn_mask=m)


def mm(m, n, k, dtype=BF):
    return lambda: torch.mm(torch.zeros(m, k, device="cuda", dtype=dtype), torch.zeros(k, n, device="cuda", dtype=dtype))


OPS = {
    "zeros": lambda: torch.zeros(100, device="cuda"), "fill": lambda: torch.ones(100, device="cuda"), "add": lambda: rnd(100) + 1, "to": lambda: rnd(100).to(BF), "arange": lambda: torch.arange(100, device="cuda"),
    "embedding": lambda: F.embedding(ints(100, 64), rnd(100, 64, dtype=BF)), "rms_norm": lambda: F.rms_norm(rnd(64, 512, dtype=BF), (512,)), "layer_norm": lambda: F.layer_norm(rnd(64, 512, dtype=BF), (512,)),
    "silu": lambda: F.silu(rnd(64, 512, dtype=BF)), "gelu": lambda: F.gelu(rnd(64, 512, dtype=BF)), "softmax": lambda: rnd(64, 512).softmax(-1), "argmax": lambda: rnd(64, 512).argmax(-1), "sort": lambda: rnd(64, 5120).sort(-1),
    "topk": lambda: rnd(64, 5120).topk(10), "cumsum": lambda: rnd(64, 512).cumsum(-1), "exponential": lambda: torch.empty(64, 512, device="cuda").exponential_(), "multinomial": lambda: rnd(64, 512).softmax(-1).multinomial(1),
    "index": lambda: rnd(64, 512)[ints(64, 32)], "index_put": lambda: rnd(64, 512).index_put_((ints(64, 32),), rnd(32, 512)), "gather": lambda: rnd(64, 512).gather(1, ints(512, 64, 4)), "scatter": lambda: rnd(64, 512).scatter_(1, ints(512, 64, 4), 0.0),
    "cat": lambda: torch.cat([rnd(64, 512), rnd(64, 512)]), "sum": lambda: rnd(64, 512).sum(), "mean": lambda: rnd(64, 512).mean(-1), "where": lambda: torch.where(rnd(64) > 0, rnd(64), rnd(64)), "nonzero": lambda: rnd(64).nonzero(),
    "sin": lambda: rnd(64).sin() + rnd(64).cos(), "pow": lambda: rnd(64).abs().pow(0.3).rsqrt(), "foreach": lambda: torch._foreach_add_([rnd(10) for _ in range(50)], 1.0), "randperm": lambda: torch.randperm(10000, device="cuda"),
    "blas": lambda: torch.cuda.current_blas_handle(), "mm16": mm(512, 512, 512), "mm16-big": mm(8192, 4096, 4096), "mm16-1": mm(1, 4096, 4096), "mm16-8": mm(8, 4096, 4096), "mm16-16": mm(16, 4096, 4096), "mm16-64": mm(64, 4096, 4096),
    "mm16-128": mm(128, 4096, 4096), "mm16-256": mm(256, 4096, 4096), "mm16-wide": mm(64, 128256, 4096), "mm16-odd": mm(77, 768, 3072), "mmh": mm(512, 512, 512, H), "mmh-1": mm(1, 768, 768, H), "mmh-wide": mm(64, 50272, 768, H),
    "mm32": mm(512, 512, 512, torch.float32), "linear": lambda: F.linear(rnd(64, 512, dtype=BF), rnd(512, 512, dtype=BF), rnd(512, dtype=BF)), "bmm": lambda: torch.bmm(rnd(8, 64, 64, dtype=BF), rnd(8, 64, 64, dtype=BF)),
    "fp8": lambda: torch._scaled_mm(rnd(64, 512).to(torch.float8_e4m3fn), rnd(512, 512).to(torch.float8_e4m3fn).t(), scale_a=torch.ones((), device="cuda"), scale_b=torch.ones((), device="cuda"), out_dtype=BF),
    "flash64": lambda: sdp("FLASH_ATTENTION", 64), "flash128": lambda: sdp("FLASH_ATTENTION", 128), "flash256": lambda: sdp("FLASH_ATTENTION", 256), "efficient128": lambda: sdp("EFFICIENT_ATTENTION", 128), "efficient-mask": lambda: sdp("EFFICIENT_ATTENTION", 128, mask=True),
    "efficient64-mask": lambda: sdp("EFFICIENT_ATTENTION", 64, mask=True), "efficient32": lambda: sdp("EFFICIENT_ATTENTION", 64, torch.float32), "math": lambda: sdp("MATH", 64), "cudnn128": lambda: sdp("CUDNN_ATTENTION", 128),
    "conv": lambda: F.conv2d(rnd(2, 16, 32, 32), rnd(16, 16, 3, 3)), "stream": lambda: KEEP.append(torch.cuda.Stream()), "streams4": lambda: KEEP.extend(torch.cuda.Stream() for _ in range(4)), "pinned": lambda: KEEP.append(torch.zeros(1000).pin_memory().to("cuda", non_blocking=True)),
    "event": lambda: KEEP.extend(torch.cuda.Event(enable_timing=True) for _ in range(100)),
}
KEEP = []


def sequence(names):
    def run():
        torch.cuda.init()
        torch.empty(1, device="cuda")
        look = Probe()
        look("context")
        for n in names:
            try:
                OPS[n]()
                look(n)
            except Exception as e:
                look.rows.append([n, "error", f"{type(e).__name__}: {e}"[:120]])
        return look.rows
    return run


def streams():
    rt = ctypes.CDLL([l.split()[-1] for l in open("/proc/self/maps") if "libcudart" in l][0])
    torch.cuda.init()
    torch.empty(1, device="cuda")
    look = Probe()
    look("context")
    out, last = [], look.rows[0][1:]
    for i in range(1, 161):
        s = ctypes.c_void_p()
        rt.cudaStreamCreateWithPriority(ctypes.byref(s), 1, -1 if i % 2 else 0)
        now = look("s")[1:]
        if now != last:
            out.append([i] + now)
        last = now
    return out


def modules(lines, count):
    """count modules, each with one kernel of about `lines` multiplications."""
    def run():
        torch.cuda.init()
        x = torch.zeros(256, device="cuda")
        look = Probe()
        out = [[0] + look("before")[1:]]
        last = out[0][1:]
        for i in range(count):
            text = 'extern "C" __global__ void k(float* x) { float a = x[threadIdx.x];' + "".join(f"a = a * {1.0 + (i * 7919 + j) % 1000 / 1000:.4f}f + x[threadIdx.x + {j % 8}] * a;" for j in range(lines)) + " x[threadIdx.x] = a; }"
            k = torch.cuda._compile_kernel(text, "k")
            k((1, 1, 1), (32, 1, 1), (x,))
            KEEP.append(k)
            now = look("m")[1:]
            if now != last:
                out.append([i + 1] + now)
            last = now
        return out
    return run


def nccl():
    import torch.distributed as dist
    torch.cuda.init()
    torch.empty(1, device="cuda")
    look = Probe()
    look("context")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29611")
    dist.init_process_group("nccl", rank=0, world_size=1, device_id=None)
    look("group")
    x = torch.zeros(10, device="cuda")
    look("zeros")
    dist.all_reduce(x)
    look("all_reduce")
    return look.rows


SMALL = [n for n in OPS if not n.startswith(("blas", "mm", "linear", "bmm", "fp8", "flash", "eff", "math", "cudnn", "conv", "stream"))]
MMS = [n for n in OPS if n.startswith("mm")]
ATT = ["flash64", "flash128", "flash256", "efficient128", "efficient-mask", "efficient64-mask", "efficient32", "math", "cudnn128"]
J = [("small", sequence(SMALL)), ("streams", streams), ("stream first", sequence(["stream", "streams4", "add", "blas", "mm16"])), ("blas", sequence(["add", "blas", "mm16", "linear", "bmm", "fp8", "mm32"])),
     ("products", sequence(["add"] + MMS)), ("attention", sequence(["add"] + ATT)), ("conv", sequence(["add", "conv", "mm16", "stream"])), ("serving", sequence(["zeros", "stream", "fill", "to", "embedding", "rms_norm", "mm16-big", "flash128", "silu", "mm16-wide", "argmax", "sort", "multinomial"])),
     ("memory first", sequence(["pinned", "event", "zeros"])), ("nccl", nccl), ("modules small", modules(2, 60)), ("modules 1000 lines", modules(1000, 12))]
J += [(f"only {n}", sequence(["add", n])) for n in ["blas"] + ATT + ["mm16", "mmh", "mm32", "fp8", "linear", "sort", "multinomial"]]
print(json.dumps({"torch": torch.__version__}), flush=True)
forked(J, int(sys.argv[1]) if len(sys.argv) > 1 else 8)
print(f"seconds {time.time() - T0:.0f}", flush=True)
