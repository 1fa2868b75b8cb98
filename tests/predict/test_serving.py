"""A serving engine's own numbers, of a package that has vLLM's names; vLLM itself is tried by hand (`docs/howto/serving.md`)."""

import json
import signal

import pytest
from described import assert_described
from harness import COLD

WORKER = """
import torch
import vllm.envs
from types import SimpleNamespace

class Worker:
    def __init__(self, config):
        self.cache_config = config.cache_config
        free, total = torch.cuda.mem_get_info()
        self.init_snapshot = SimpleNamespace(total_memory=total, free_memory=free)
        self.model_runner = SimpleNamespace(model_memory_usage=3 << 30)

    def init_device(self):
        self.device = torch.device("cuda")

    def determine_available_memory(self):
        self.peak_activation_memory, self.total_consumed, self.cudagraph_memory_estimate = (1 << 30) + (64 << 20), (3 << 30) + (200 << 20), 64 << 20
        total, share = self.init_snapshot.total_memory, self.cache_config.gpu_memory_utilization
        return int(total * share) - self.total_consumed - self.peak_activation_memory

    def compile_or_warm_up_model(self):
        # More passes, with steady memory, than a script that only runs a model forward is watched for.
        net = torch.nn.Linear(64, 64, device="cuda")
        with torch.no_grad():
            for _ in range(400):
                net(torch.zeros(8, 64, device="cuda"))
        return 0.0
"""
ARGUMENTS = """
from types import SimpleNamespace

class EngineArgs:
    def __init__(self, max_model_len):
        self.max_model_len, self.max_num_seqs, self.kv_cache_dtype, self.enforce_eager, self.gpu_memory_utilization = max_model_len, 64, "auto", True, 0.9

    def create_engine_config(self):
        if self.max_model_len is not None and 131072 < self.max_model_len:
            raise ValueError(f"User-specified max_model_len ({self.max_model_len}) is greater than the derived max_model_len (max_position_embeddings=131072.0 or model_max_length=None in model's config.json)")
        return SimpleNamespace(
            cache_config=SimpleNamespace(gpu_memory_utilization=self.gpu_memory_utilization, cache_dtype=self.kv_cache_dtype),
            model_config=SimpleNamespace(max_model_len=self.max_model_len or 131072, enforce_eager=self.enforce_eager),
            scheduler_config=SimpleNamespace(max_num_batched_tokens=8192, max_num_seqs=self.max_num_seqs))
"""
CAPACITY = """
def get_kv_cache_capacity(config, planned):
    length = config.model_config.max_model_len
    at_once = planned.num_blocks / -(-length // 16)
    return int(at_once * length), at_once
"""
PLAN = """
from types import SimpleNamespace
from vllm.v1.core import kv_cache_utils

TOKEN = 131072

def token_of(config):
    return TOKEN // 2 if config.cache_config.cache_dtype == "fp8" else TOKEN

def _check_enough_kv_cache_memory(available, get_needed, max_model_len, estimate):
    needs = get_needed()
    if available < needs:
        raise ValueError(
            f"To serve at least one request with the model's max seq len ({max_model_len}), ({needs / 2**30:.2f} GiB KV cache is needed, which is "
            f"larger than the available KV cache memory ({available / 2**30:.2f} GiB). Based on the available memory, the estimated maximum model length is {estimate(available)}. "
            "Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.")

def get_kv_cache_configs(config, specs, available, groups):
    token = token_of(config)
    needed = lambda: -(-config.model_config.max_model_len // 16) * 16 * token
    _check_enough_kv_cache_memory(available[0], needed, config.model_config.max_model_len, lambda it: it // TOKEN)
    blocks = available[0] // (16 * token)
    size = blocks * 16 * token
    # Half of the layers each, in one allocation.
    tensors = [SimpleNamespace(size=size, offset=0, layer_stride=size // 2, block_stride=16), SimpleNamespace(size=size, offset=size // 2, layer_stride=size // 2, block_stride=16)]
    return [SimpleNamespace(num_blocks=blocks, kv_cache_groups=groups, kv_cache_tensors=tensors)]
"""
OLDER = """
    # An allocation for each.
    tensors = [SimpleNamespace(size=size // 2, offset=0, block_stride=0), SimpleNamespace(size=size // 2, offset=0, block_stride=0)]"""
SCRIPT = """
import sys
import torch
from types import SimpleNamespace
from vllm.v1.worker import gpu_worker
from vllm.v1.engine.core import get_kv_cache_configs
from vllm.engine.arg_utils import EngineArgs

config = EngineArgs(int(sys.argv[1])).create_engine_config()
worker = gpu_worker.Worker(config)
worker.init_device()
available = worker.determine_available_memory()
try:
    planned = get_kv_cache_configs(config, [{}], [available], ["group"])
except ValueError as error:
    print(error)
    sys.exit(3)

def allocate_kv_cache():
    return torch.empty(planned[0].kv_cache_tensors[0].size, dtype=torch.int8, device="cuda")

cache = allocate_kv_cache()
worker.compile_or_warm_up_model()
net = torch.nn.Linear(1024, 1024).cuda()
with torch.no_grad():
    for _ in range(3):
        net(torch.zeros(8, 1024, device="cuda"))
"""


UVICORN = """
import asyncio

class Server:
    def __init__(self):
        self.should_exit = False

    async def startup(self, sockets=None):
        self.started = True

    async def serve(self):
        await self.startup()
        print("the server is ready", flush=True)
        while not self.should_exit:
            await asyncio.sleep(0.05)
"""
SERVER = """
import asyncio, multiprocessing, signal, sys
import torch
from uvicorn.server import Server
import vllm.entrypoints.openai.api_server

def engine(ready, stop):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    exec(open("serve.py").read().split("net =")[0], {"__name__": "engine"})
    ready.set()
    stop.wait()

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    child = context.Process(target=engine, args=(ready, stop))
    child.start()
    ready.wait()
    try:
        asyncio.run(Server().serve())
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    # As vLLM ends its engine, which has no time unless `--shutdown-timeout` gives it some.
    from vllm.v1 import utils
    utils.shutdown([child], timeout=0)
"""
REGISTRY = """
def _run_in_subprocess(ask):
    raise RuntimeError("another process would begin")

def inspect():
    return _run_in_subprocess(lambda: "LlamaForCausalLM")
"""
UTILS = """
def shutdown(procs, timeout=None):
    for it in procs:
        it.terminate()
        it.join(timeout)
        it.kill()
"""


def package(plimsoll, older=False):
    """With vLLM's names: those of 0.33, or of 0.24."""
    for folder in ("vllm", "vllm/engine", "vllm/v1", "vllm/v1/engine", "vllm/v1/worker", "vllm/v1/core", "vllm/entrypoints", "vllm/entrypoints/openai", "vllm/model_executor",
                   "vllm/model_executor/models", "uvicorn"):
        (plimsoll.folder / folder).mkdir(exist_ok=True)
        (plimsoll.folder / folder / "__init__.py").touch()
    (plimsoll.folder / "vllm/v1/worker/gpu_worker.py").write_text(WORKER)
    (plimsoll.folder / "vllm/envs.py").write_text("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS = True")
    (plimsoll.folder / "vllm/engine/arg_utils.py").write_text(ARGUMENTS)
    (plimsoll.folder / "vllm/v1/core/kv_cache_utils.py").write_text(CAPACITY)
    (plimsoll.folder / "vllm/v1/core/kv_cache_planning.py").write_text(PLAN)
    (plimsoll.folder / "vllm/v1/engine/core.py").write_text("from vllm.v1.core.kv_cache_planning import get_kv_cache_configs")
    (plimsoll.folder / "vllm/entrypoints/openai/api_server.py").touch()
    (plimsoll.folder / "vllm/v1/utils.py").write_text(UTILS)
    (plimsoll.folder / "vllm/model_executor/models/registry.py").write_text(REGISTRY)
    (plimsoll.folder / "uvicorn/server.py").write_text(UVICORN)
    plimsoll.script(SCRIPT, "serve.py")
    if older:
        worker = WORKER.replace("(1 << 30) + (64 << 20), (3 << 30) + (200 << 20)", "1 << 30, 200 << 20").replace("total_consumed", "non_torch_memory")
        worker = worker.replace("- self.peak_activation_memory", "- (3 << 30) - self.peak_activation_memory - self.cudagraph_memory_estimate")
        plan = PLAN[: PLAN.index("    # Half")].replace(", groups)", ", groups=None)") + OLDER + PLAN[PLAN.index("\n    return [SimpleNamespace(num_blocks") :]
        (plimsoll.folder / "vllm/v1/worker/gpu_worker.py").write_text(worker)
        (plimsoll.folder / "vllm/v1/core/kv_cache_utils.py").write_text(CAPACITY + plan.replace("from vllm.v1.core import kv_cache_utils\n", ""))
        (plimsoll.folder / "vllm/v1/core/kv_cache_planning.py").unlink()
        (plimsoll.folder / "vllm/v1/engine/core.py").write_text("from vllm.v1.core.kv_cache_utils import get_kv_cache_configs")
        script = SCRIPT.replace(', ["group"])', ")").replace("tensors[0].size,", "tensors[0].size * 2,")
        plimsoll.script(script, "serve.py")


def serve(plimsoll, length, older=False):
    package(plimsoll, older)
    return plimsoll.predict("serve.py", str(length), options=("--gpu", "l4", "--until-exit"))


@pytest.mark.parametrize("older", [False, True])
def test_an_engine_that_starts(plimsoll, older):
    ran = serve(plimsoll, 32768, older)
    assert ran.code == 0, ran
    serving = ran.report["serving"]
    # The current one tells what was taken as a whole: what is not the driver's is the pass's.
    forward = 1 << 30 if older else (1 << 30) + (200 << 20) - serving["beside_bytes"]
    assert (serving["engine"], serving["starts"], serving["weights_bytes"], serving["forward_bytes"]) == ("vllm", True, 3 << 30, forward), serving
    cache = serving["cache_bytes"]
    assert ran.report["categories"]["kv_cache"] == cache
    assert serving["tokens"] == cache // 131072
    assert {it["tokens_each"]: it["users"] for it in serving["users"]}[32768] == cache // (4 << 30)
    assert "for keys and values" in ran.stdout and f"{serving['tokens']:,} tokens of 128.0 KiB" in ran.stdout, ran.stdout
    assert "training" not in ran.stdout, ran.stdout


def test_an_engine_that_refuses_does_not_fit(plimsoll):
    ran = serve(plimsoll, 1 << 17)
    assert ran.code == 1, ran
    assert ran.report["verdict"] == "does_not_fit" and not ran.report["serving"]["starts"], json.dumps(ran.report["serving"])
    longest = ran.report["serving"]["remedies"][0]
    assert "max_model_len=" in longest and longest in " ".join(ran.stdout.split()), ran.stdout
    assert "plimsoll fit --users 1 --gpu l4 -- serve.py 131072" in ran.stdout, ran.stdout


def test_a_server_is_stopped_when_it_is_ready(plimsoll):
    package(plimsoll)
    plimsoll.script(SERVER, "server.py")
    ran = plimsoll.predict("server.py", "32768", options=("--gpu", "l4"), environment=plimsoll.cold())
    assert ran.code == 0, ran
    assert ran.report["serving"]["starts"] and ran.report["categories"]["kv_cache"] == ran.report["serving"]["cache_bytes"], "the memory of its child"
    assert "the server was ready, and plimsoll stopped it before the first request" in " ".join(ran.stdout.split()), ran.stdout


@pytest.mark.soak
@pytest.mark.parametrize("command", [(COLD, "-m", "vllm.entrypoints.openai.api_server"), (COLD, "own_server.py")])
def test_a_server_is_stopped_whoever_starts_it(plimsoll, command):
    """vLLM's module is `__main__` then; a script with a server of its own imports vLLM."""
    package(plimsoll)
    (plimsoll.folder / "vllm/entrypoints/openai/api_server.py").write_text(SERVER.replace("import vllm.entrypoints.openai.api_server\n", ""))
    plimsoll.script(SERVER.replace("import vllm.entrypoints.openai.api_server\n", "import vllm\n"), "own_server.py")
    ran = plimsoll.predict(*command, "32768", options=("--gpu", "l4"), environment=plimsoll.cold())
    assert ran.code == 0 and ran.report["serving"]["starts"], ran
    assert "the server was ready, and plimsoll stopped it" in " ".join(ran.stdout.split()), ran.stdout


FAILING = """
import asyncio, multiprocessing, sys
import torch
from uvicorn.server import Server
import vllm.entrypoints.openai.api_server

def engine():
    torch.zeros(1, device="cuda")
    raise RuntimeError("Cannot find any model weights with `/models/m`")

def swallowing():
    from types import SimpleNamespace
    from vllm.v1.worker import gpu_worker
    worker = gpu_worker.Worker(SimpleNamespace(cache_config=SimpleNamespace(gpu_memory_utilization=0.9)))
    try:
        worker.init_device()
    except Exception:
        print("WorkerProc failed to start.")

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=globals()[sys.argv[1]])
    child.start()
    child.join()
    raise RuntimeError("Engine core initialization failed. See root cause above. Failed core proc(s): {}")
"""


@pytest.mark.soak
@pytest.mark.parametrize("how, why", [
    ("engine", "the script raised RuntimeError: Cannot find any model weights with `/models/m`"),
    ("swallowing", "the script raised OSError: no such device")])
def test_the_cause_is_what_the_engines_own_process_raised(plimsoll, how, why):
    package(plimsoll)
    worker = WORKER.replace('self.device = torch.device("cuda")', 'raise OSError("no such device")') if how == "swallowing" else WORKER
    (plimsoll.folder / "vllm/v1/worker/gpu_worker.py").write_text(worker)
    plimsoll.script(FAILING, "server.py")
    ran = plimsoll.predict("server.py", how, options=("--gpu", "l4"), environment=plimsoll.cold())
    assert ran.code == 2 and f"plimsoll: {why}" in ran.stderr, ran


OWN = """
import asyncio
import torch
from uvicorn.server import Server

net = torch.nn.Linear(4096, 4096, device="cuda")
asyncio.run(Server().serve())
"""


def test_a_server_of_the_users_own_model_fits_so_far(plimsoll):
    package(plimsoll)
    plimsoll.script(OWN, "server.py")
    ran = plimsoll.predict("server.py", options=("--gpu", "l4"), environment=plimsoll.cold())
    assert ran.code == 2 and ran.report["verdict"] == "fits_so_far", ran
    assert "FITS SO FAR l4" in ran.stdout and "stopped it before the first request, whose memory is not counted" in " ".join(ran.stdout.split()), ran.stdout


@pytest.mark.soak
def test_a_server_of_the_users_own_model_that_is_interrupted_has_its_answer(plimsoll):
    package(plimsoll)
    plimsoll.script(OWN.replace("asyncio.run", "with torch.no_grad(): net(torch.zeros(1 << 14, 4096, device='cuda'))\nasyncio.run"), "server.py")
    run = plimsoll.start("predict", "--gpu", "l4", "--until-exit", "--", "server.py", environment=plimsoll.cold())
    assert "the server is ready\n" in iter(run.stdout.readline, "")
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0 and "FITS l4" in out, out + err
    assert "interrupted: the report covers what the server did until then" in err, err


TOO_LARGE = SCRIPT.split("available =")[0] + """
def load_model():
    return [torch.empty(8 << 30, dtype=torch.int8, device="cuda") for _ in range(4)]

load_model()
"""


def test_weights_that_are_too_large_are_named(plimsoll):
    package(plimsoll)
    plimsoll.script(TOO_LARGE, "serve.py")
    ran = plimsoll.predict("serve.py", "4096", options=("--gpu", "l4"))
    said = " ".join(ran.stdout.split())
    assert ran.code == 1 and "the engine ran out of memory while it loaded the weights" in said, ran
    assert "plimsoll fit --users 1 --context 4096 -- serve.py 4096" in said and "training" not in said, said


LOADED = WORKER.replace("    def determine_available_memory(self):", """    def load_model(self):
        self.weights = torch.empty(3 << 30, dtype=torch.int8, device="cuda")

    def determine_available_memory(self):
        torch.empty(40 << 30, dtype=torch.int8, device="cuda")""")


def test_nothing_is_interpreted_while_an_engine_measures_and_warms_up(plimsoll):
    """Its passes of as many requests as it may ever have would use up the time that its prompts need."""
    package(plimsoll)
    paused = "\n        from plimsoll_agent.values import interpreted\n        assert interpreted._paused"
    worker = WORKER
    for name in ("determine_available_memory", "compile_or_warm_up_model"):
        worker = worker.replace(f"def {name}(self):", f"def {name}(self):{paused}")
    (plimsoll.folder / "vllm/v1/worker/gpu_worker.py").write_text(worker)
    plimsoll.script(SCRIPT + "from plimsoll_agent.values import interpreted\nassert not interpreted._paused", "serve.py")
    ran = plimsoll.predict("serve.py", "4096", options=("--gpu", "l4", "--until-exit"))
    assert ran.code == 0 and ran.report["serving"]["starts"], ran


def test_a_first_pass_that_is_too_large_is_not_called_weights(plimsoll):
    package(plimsoll)
    (plimsoll.folder / "vllm/v1/worker/gpu_worker.py").write_text(LOADED)
    plimsoll.script(SCRIPT.replace("available =", "worker.load_model()\navailable =", 1), "serve.py")
    ran = plimsoll.predict("serve.py", "4096", options=("--gpu", "l4"))
    said = " ".join(ran.stdout.split())
    assert ran.code == 1 and "the engine ran out of memory in its first forward pass" in said and "training" not in said, ran


def test_a_search_whose_weights_are_too_large_says_so_and_names_no_flag_that_would_not_help(plimsoll):
    package(plimsoll)
    plimsoll.script(TOO_LARGE, "serve.py")
    ran = plimsoll.run("fit", "--gpu", "l4", "--users", "2", "--", "serve.py", "4096")
    assert ran.code == 1 and "DOES NOT FIT l4: 2 users; the engine ran out of memory while it loaded the weights: use quantized weights" in ran.stdout, ran
    assert "--allow" not in ran.stdout and "finds the smallest card that holds them" in ran.stdout, ran.stdout


def test_an_engine_that_wants_the_whole_card_is_told_what_is_free(plimsoll):
    package(plimsoll)
    refused = 'raise ValueError("Free memory on device cuda:0 (21.51/22.05 GiB) on startup is less than desired GPU memory utilization (1.0, 22.05 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.")'
    (plimsoll.folder / "vllm/v1/worker/gpu_worker.py").write_text(WORKER.replace('self.device = torch.device("cuda")', refused))
    ran = plimsoll.predict("serve.py", "4096", options=("--gpu", "l4"))
    said = " ".join(ran.stdout.split())
    assert ran.code == 1 and "the engine's `gpu_memory_utilization` asks for more than the 21.51 GiB of 22.05 GiB that are free when it starts" in said, ran
    assert "set `gpu_memory_utilization=0.97` or less" in said and "other processes" not in said and "plimsoll fit" not in said, said


ON_ITS_WAY_OUT = """def engine(ready, stop):
    def asked(*_):
        raise SystemExit
    signal.signal(signal.SIGTERM, asked)
    signal.signal(signal.SIGINT, asked)
    try:
        exec(open("serve.py").read().split("net =")[0], {"__name__": "engine"})
        ready.set()
        stop.wait()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        time.sleep(1)
"""


@pytest.mark.soak
@pytest.mark.parametrize("is_asked_twice", [False, True])
def test_a_server_that_is_interrupted_has_its_answer(plimsoll, is_asked_twice):
    """Of a terminal each process gets the signal, and vLLM's engine has the default handlers again on its way out, when its parent ends it."""
    package(plimsoll)
    server = SERVER
    if is_asked_twice:
        begin, end = server.index("def engine"), server.index("\nif __name__")
        server = server[:begin] + ON_ITS_WAY_OUT + server[end:].replace("signal.SIG_IGN)", "signal.SIG_IGN)\n        os.kill(child.pid, signal.SIGINT)\n        time.sleep(0.3)")
        server = server.replace("import asyncio,", "import asyncio, os, time,")
    plimsoll.script(server, "server.py")
    run = plimsoll.start("predict", "--gpu", "l4", "--until-exit", "--", "server.py", "32768", environment=plimsoll.cold())
    assert "the server is ready\n" in iter(run.stdout.readline, "")
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, out + err
    assert "FITS l4" in out and "for keys and values" in out, out + err
    assert "interrupted: the report covers what the server did until then" in err, err


def fit(plimsoll, *options, command=("serve.py", "4096")):
    package(plimsoll)
    path = plimsoll.folder / "found.json"
    path.unlink(missing_ok=True)
    ran = plimsoll.run("fit", "--json", path, "--gpu", "l4", *options, "--", *command)
    if path.exists() and path.stat().st_size:
        ran.report = json.loads(path.read_text())
        assert_described("fit-serving", ran.report)
    plimsoll.assert_nothing_left()
    return ran


def cache_on_an_l4(plimsoll):
    return serve(plimsoll, 4096).report["serving"]["cache_bytes"]


def test_the_longest_context_for_users_starts_and_the_next_does_not(plimsoll):
    ran = fit(plimsoll, "--users", "2")
    assert ran.code == 0, ran
    blocks = cache_on_an_l4(plimsoll) // (16 * 131072)
    longest = blocks // 2 * 16
    tried = [(it["context"], it["outcome"]) for it in ran.report["tried"]]
    assert tried == [(131072, "refuses"), (longest, "ready")] and ran.report["refused"] == longest + 1, ran.report
    assert f"the engine's own rule refuses {longest + 1:,} tokens" in ran.stdout and f"FITS l4: 2 users of at most {longest:,} tokens; {longest + 1:,} do not fit" in ran.stdout, ran.stdout
    assert f"LLM(..., max_model_len={longest})" in ran.stdout, ran.stdout
    # So it is: a start for one token more holds one user.
    started = fit(plimsoll, "--context", str(longest + 1))
    assert started.report["found"]["users"] == 1, started
    assert "the script" not in ran.stdout and "training" not in ran.stdout, ran.stdout


def test_the_users_of_a_context(plimsoll):
    ran = fit(plimsoll, "--context", "8192")
    assert ran.code == 0, ran
    users = cache_on_an_l4(plimsoll) // (8192 * 131072)
    assert (ran.report["runs"], ran.report["found"]["users"]) == (1, users), ran.report
    assert f"FITS l4: {users} users of 8,192 tokens" in ran.stdout, ran.stdout


FLASHINFER_CORE = """
class JitSpec:
    is_aot = False

    def write_ninja(self):
        raise RuntimeError("nvcc was started")

    def build_and_load(self):
        raise RuntimeError("nvcc was started")
"""
FLASHINFER_LOADER = """
import ctypes

def setup_cubin_loader(path):
    ctypes.CDLL(path)
"""
FLASHINFER_COMPILER = """
def get_cuda_path():
    raise RuntimeError("Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist")
"""
TVM_FFI = """
def _find_cuda_home():
    raise RuntimeError("Could not find CUDA installation. Please set CUDA_HOME environment variable.")

def load_inline(name, *, cpp_sources=None, cuda_sources=None, backend=None):
    if cuda_sources:
        _find_cuda_home()
    return "compiled"

def load(name, *, sources=None, cpp_files=None, cuda_files=None):
    if cuda_files or str(sources).endswith(".cu"):
        _find_cuda_home()
    return "compiled"
"""


def test_vllm_looks_at_its_model_in_this_process_and_kernels_without_a_compiler_do_nothing(plimsoll):
    """Another process would import vLLM once more; on a phantom no kernel does anything."""
    package(plimsoll)
    (plimsoll.folder / "flashinfer/jit").mkdir(parents=True)
    for name, text in (("__init__", ""), ("jit/__init__", ""), ("jit/core", FLASHINFER_CORE), ("jit/cpp_ext", FLASHINFER_COMPILER), ("jit/cubin_loader", FLASHINFER_LOADER)):
        (plimsoll.folder / f"flashinfer/{name}.py").write_text(text)
    (plimsoll.folder / "tvm_ffi/cpp").mkdir(parents=True)
    for name, text in (("__init__", ""), ("cpp/__init__", "from .extension import load, load_inline"), ("cpp/extension", TVM_FFI)):
        (plimsoll.folder / f"tvm_ffi/{name}.py").write_text(text)
    text = """
from vllm.model_executor.models import registry
assert registry.inspect() == "LlamaForCausalLM"
from flashinfer.jit import core, cpp_ext
kernels = core.JitSpec().build_and_load()
assert kernels.softmax(1, 2) is None and kernels.plan(1) is not None
from flashinfer.jit.cubin_loader import setup_cubin_loader
setup_cubin_loader("/no/fmha_gen.so")
from tvm_ffi.cpp import load, load_inline
assert load_inline("rope", cpp_sources=[], cuda_sources=["#include <rope.cuh>"]).run_rope(1, 2) is None
assert load("norm", cuda_files=["norm.cu"]).norm(1) is None and load("norm", sources="norm.cu").norm(1) is None
assert load("host", cpp_files=["host.cpp"]) == "compiled" and load_inline("host", cpp_sources="int f();") == "compiled"
"""
    plimsoll.script(text + SCRIPT, "inspects.py")
    ran = plimsoll.predict("inspects.py", "4096", options=("--gpu", "l4", "--until-exit"))
    assert ran.code == 0 and ran.report["serving"]["starts"], ran
    assert "this machine has no nvcc" in " ".join(ran.stdout.split()), ran.stdout


def test_an_engine_whose_plan_was_not_seen_is_no_answer(plimsoll):
    package(plimsoll)
    (plimsoll.folder / "vllm/v1/engine/elsewhere.py").write_text(PLAN.replace("get_kv_cache_configs", "plan"))
    plimsoll.script(SCRIPT.replace("vllm.v1.engine.core import get_kv_cache_configs", "vllm.v1.engine.elsewhere import plan as get_kv_cache_configs"), "moved.py")
    ran = plimsoll.run("fit", "--gpu", "l4", "--context", "4096", "--", "moved.py", "4096")
    assert ran.code == 2 and "plimsoll did not see how it plans its cache" in " ".join(ran.stdout.split()), ran


def test_an_engine_that_fails_after_its_plan_holds_no_less_than_it_planned(plimsoll):
    package(plimsoll)
    worker = WORKER.replace("    def compile_or_warm_up_model(self):", "    def compile_or_warm_up_model(self):\n        assert False, 'no kernel'")
    (plimsoll.folder / "vllm/v1/worker/gpu_worker.py").write_text(worker)
    ran = plimsoll.run("fit", "--gpu", "l4", "--context", "4096", "--users", "2", "--", "serve.py", "4096")
    assert ran.code == 2 and "COULD NOT TELL: the script raised AssertionError: no kernel" in ran.stdout, ran


DRAFTS = """
import torch

def rejection_sample(target_logits, n_requests):
    got = torch.empty(n_requests, dtype=torch.int32, device="cuda")
    # As a kernel of Triton would write it: by numbers that nobody computed.
    got.copy_(target_logits[:n_requests, 0] > 0.5)
    return torch.empty(n_requests, 4, dtype=torch.int64, device="cuda"), got
"""
DRAFTING = """
import torch
from vllm.v1.worker.gpu.spec_decode import rejection_sampler

left = [16, 5]
for turn in range(1000):
    _, got = rejection_sampler.rejection_sample(torch.randn(8, 64, device="cuda") @ torch.randn(64, 64, device="cuda"), 2)
    left = [n - k for n, k in zip(left, got.tolist())]
    if max(left) <= 0:
        break
print("turns", turn + 1)
"""


def test_an_engine_that_drafts_tokens_gets_one_with_each_pass(plimsoll):
    """How many are accepted nobody computes: read as zero, no request would ever end."""
    package(plimsoll)
    folder = plimsoll.folder / "vllm/v1/worker/gpu/spec_decode"
    folder.mkdir(parents=True)
    for it in (folder.parent, folder):
        (it / "__init__.py").touch()
    (folder / "rejection_sampler.py").write_text(DRAFTS)
    plimsoll.script(DRAFTING, "drafts.py")
    ran = plimsoll.predict("drafts.py", options=("--gpu", "l4", "--until-exit"))
    assert ran.code == 0 and "turns 16" in ran.stdout, ran


TOKENS = """
import torch

def rejection_sample(draft_token_ids, num_draft_tokens, target_probs):
    # A kernel of Triton writes tokens into it: by numbers that nobody computed.
    return torch.full((len(num_draft_tokens), 4), -1, dtype=torch.int32, device="cuda")
"""
GUESSING = """
import torch
from vllm.v1.sample import rejection_sampler

left, drafts = [16, 5], torch.tensor([7, 8, 9], dtype=torch.int32, device="cuda")
for turn in range(1000):
    tokens = rejection_sampler.rejection_sample(drafts, [3, 0], torch.randn(3, 64, device="cuda"))
    left = [n - k for n, k in zip(left, (tokens.cpu() != -1).sum(1).tolist())]
    if max(left) <= 0:
        break
print("turns", turn + 1, tokens[:, 0].tolist())
"""


def test_the_tokens_of_an_engine_that_drafts_come_one_with_each_pass(plimsoll):
    """Which they are nobody computes: left as they are, they would be none."""
    package(plimsoll)
    folder = plimsoll.folder / "vllm/v1/sample"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "rejection_sampler.py").write_text(TOKENS)
    plimsoll.script(GUESSING, "guessing.py")
    ran = plimsoll.predict("guessing.py", options=("--gpu", "l4", "--until-exit"))
    assert ran.code == 0 and "turns 16 [7, 0]" in ran.stdout, ran


STRIDES = """
import torch

class GPUModelRunner:
    def _reshape_kv_cache_tensors(self, raw, shape):
        return torch.as_strided(raw, (raw.numel() // shape[1], shape[1]), torch.empty(shape).stride())

def _reshape_kv_cache(raw, shape):
    return GPUModelRunner._reshape_kv_cache_tensors(None, raw, shape)
"""
STATES = """
import torch
from vllm.v1.worker import gpu_model_runner
from vllm.v1.worker.gpu import attn_utils

raw = torch.zeros(1 << 20, device="cuda")
for view in (gpu_model_runner.GPUModelRunner()._reshape_kv_cache_tensors, attn_utils._reshape_kv_cache):
    print("view", view(raw, (1 << 45, 1024)).shape, torch.empty(2).device)
"""


def test_a_cache_of_states_is_no_tensor_of_this_machine(plimsoll):
    """vLLM makes one on the CPU, as large as the cache on the card, for its strides."""
    package(plimsoll)
    (plimsoll.folder / "vllm/v1/worker/gpu").mkdir()
    (plimsoll.folder / "vllm/v1/worker/gpu/__init__.py").touch()
    (plimsoll.folder / "vllm/v1/worker/gpu_model_runner.py").write_text(STRIDES)
    (plimsoll.folder / "vllm/v1/worker/gpu/attn_utils.py").write_text(STRIDES.replace("class GPUModelRunner", "class Runner").replace("GPUModelRunner.", "Runner."))
    plimsoll.script(STATES, "states.py")
    ran = plimsoll.predict("states.py", options=("--gpu", "l4", "--until-exit"))
    assert ran.code == 0 and ran.stdout.count("view torch.Size([1024, 1024]) cpu") == 2, ran


def test_the_mildest_flag_that_is_enough(plimsoll):
    users = cache_on_an_l4(plimsoll) // (8192 * 131072) + 2
    asked = ("--users", str(users), "--context", "8192")
    ran = fit(plimsoll, *asked)
    assert ran.code == 1 and f"DOES NOT FIT l4: {users} users of 8,192 tokens" in ran.stdout, ran
    assert "--allow max-num-seqs,gpu-memory-utilization,kv-cache-dtype,enforce-eager lets the search set these flags, too" in ran.stdout, ran.stdout
    ran = fit(plimsoll, *asked, "--allow", "enforce-eager,kv-cache-dtype")
    assert ran.code == 0 and ran.report["found"]["flags"] == {"max_model_len": "8192", "kv_cache_dtype": "fp8"}, ran
    assert "kv-cache-dtype: keys and values are less precise" in ran.stdout, ran.stdout


def test_what_is_wrong_is_said(plimsoll):
    ran = fit(plimsoll, "--users", "2", "--context", "200000")
    assert ran.code == 2 and "the model allows 131,072 tokens at most" in ran.stdout, ran
    ran = fit(plimsoll, "--users", "2", "--allow", "kv-cache-dtyp")
    assert ran.code == 2 and "there is no flag kv-cache-dtyp that the search for an engine may set; did you mean `kv-cache-dtype`?" in ran.stderr, ran
    ran = fit(plimsoll, command=("vllm", "serve", "model"))
    assert ran.code == 2 and "say what it is to hold: --users 8 finds their longest context, --context 32768 how many users" in ran.stderr, ran
    plimsoll.script("import torch; torch.zeros(1, device='cuda')", "none.py")
    ran = fit(plimsoll, "--users", "2", command=("none.py",))
    assert ran.code == 2 and "the script started no engine that plimsoll knows (vLLM, SGLang)" in ran.stdout, ran


GROWING = """
import torch
from torch import nn


def update_cache(past, new):
    return new.clone() if past is None else torch.cat([past, new], 1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(256, 256)

    def forward(self, x, past):
        return update_cache(past, self.project(x))


model, past = Attention().cuda().eval(), None
with torch.no_grad():
    for _ in range(6):
        past = model(torch.ones(64, 1000 if past is None else 1, 256, device="cuda"), past)
"""


def test_a_cache_that_is_made_anew_for_each_token_is_one_and_no_word_is_of_training(plimsoll):
    (plimsoll.folder / "generate.py").write_text(GROWING)
    ran = plimsoll.predict("generate.py", options=("--gpu", "l4", "--until-exit", "--full"))
    assert ran.report["categories"]["kv_cache"] == 64 * 1000 * 256 * 4, ran
    assert "evaluation" not in ran.stdout and "training" not in ran.stdout, ran
