"""A serving engine's own numbers, of a package that has vLLM's names; vLLM itself is tried by hand (`docs/howto/serving.md`)."""

import json
import signal

WORKER = """
import torch
from types import SimpleNamespace

class Worker:
    def __init__(self, config):
        self.cache_config = config.cache_config
        free, total = torch.cuda.mem_get_info()
        self.init_snapshot = SimpleNamespace(total_memory=total, free_memory=free)
        self.model_runner = SimpleNamespace(model_memory_usage=3 << 30)

    def determine_available_memory(self):
        self.peak_activation_memory, self.non_torch_memory, self.cudagraph_memory_estimate = 1 << 30, 200 << 20, 0
        total, share = self.init_snapshot.total_memory, self.cache_config.gpu_memory_utilization
        return int(total * share) - (4 << 30) - (200 << 20)
"""
PLAN = """
from types import SimpleNamespace

TOKEN = 131072

def _max_memory_usage_bytes_from_groups(config, groups):
    return config.model_config.max_model_len * TOKEN

def get_kv_cache_groups(config, specs):
    return ["group"]

def get_kv_cache_capacity(config, planned):
    return planned.num_blocks * 16, 1.0

def get_kv_cache_configs(config, specs, available):
    needs = _max_memory_usage_bytes_from_groups(config, None)
    if available[0] < needs:
        raise ValueError(
            f"To serve at least one request with the model's max seq len ({config.model_config.max_model_len}), ({needs / 2**30:.2f} GiB KV cache is needed, which is "
            f"larger than the available KV cache memory ({available[0] / 2**30:.2f} GiB). Based on the available memory, the estimated maximum model length is {available[0] // TOKEN}. "
            "Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.")
    blocks = available[0] // (16 * TOKEN)
    return [SimpleNamespace(num_blocks=blocks, kv_cache_groups=["group"], kv_cache_tensors=[SimpleNamespace(size=blocks * 16 * TOKEN)])]
"""
SCRIPT = """
import sys
import torch
from types import SimpleNamespace
from vllm.v1.worker import gpu_worker
from vllm.v1.core import kv_cache_utils

config = SimpleNamespace(
    cache_config=SimpleNamespace(gpu_memory_utilization=0.9, cache_dtype="auto"),
    model_config=SimpleNamespace(max_model_len=int(sys.argv[1]), enforce_eager=True),
    scheduler_config=SimpleNamespace(max_num_batched_tokens=8192))
available = gpu_worker.Worker(config).determine_available_memory()
try:
    planned = kv_cache_utils.get_kv_cache_configs(config, [{}], [available])
except ValueError as error:
    print(error)
    sys.exit(3)

def allocate_kv_cache():
    return torch.empty(planned[0].kv_cache_tensors[0].size, dtype=torch.int8, device="cuda")

cache = allocate_kv_cache()
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
UTILS = """
def shutdown(procs, timeout=None):
    for it in procs:
        it.terminate()
        it.join(timeout)
        it.kill()
"""


def package(plimsoll):
    for folder in ("vllm", "vllm/v1", "vllm/v1/worker", "vllm/v1/core", "vllm/entrypoints", "vllm/entrypoints/openai", "uvicorn"):
        (plimsoll.folder / folder).mkdir()
        (plimsoll.folder / folder / "__init__.py").touch()
    (plimsoll.folder / "vllm/v1/worker/gpu_worker.py").write_text(WORKER)
    (plimsoll.folder / "vllm/v1/core/kv_cache_utils.py").write_text(PLAN)
    (plimsoll.folder / "vllm/entrypoints/openai/api_server.py").touch()
    (plimsoll.folder / "vllm/v1/utils.py").write_text(UTILS)
    (plimsoll.folder / "uvicorn/server.py").write_text(UVICORN)
    plimsoll.script(SCRIPT, "serve.py")


def serve(plimsoll, length):
    package(plimsoll)
    return plimsoll.predict("serve.py", str(length), options=("--gpu", "l4", "--until-exit"))


def test_an_engine_that_starts(plimsoll):
    ran = serve(plimsoll, 32768)
    assert ran.code == 0, ran
    serving = ran.report["serving"]
    assert (serving["engine"], serving["starts"], serving["weights_bytes"], serving["forward_bytes"]) == ("vllm", True, 3 << 30, 1 << 30), serving
    cache = serving["cache_bytes"]
    assert ran.report["categories"]["kv_cache"] == cache
    assert serving["tokens"] == cache // 131072
    assert {it["tokens_each"]: it["users"] for it in serving["users"]}[32768] == cache // (4 << 30)
    assert "for keys and values" in ran.stdout and f"{serving['tokens']:,} tokens of 128.0 KiB" in ran.stdout, ran.stdout
    assert "training" not in ran.stdout, ran.stdout


def test_an_engine_that_refuses_does_not_fit(plimsoll):
    ran = serve(plimsoll, 1 << 20)
    assert ran.code == 1, ran
    assert ran.report["verdict"] == "does_not_fit" and not ran.report["serving"]["starts"], json.dumps(ran.report["serving"])
    longest = ran.report["serving"]["remedies"][0]
    assert "max_model_len=" in longest and longest in " ".join(ran.stdout.split()), ran.stdout


def test_a_server_is_stopped_when_it_is_ready(plimsoll):
    package(plimsoll)
    plimsoll.script(SERVER, "server.py")
    ran = plimsoll.predict("server.py", "32768", options=("--gpu", "l4"), environment=plimsoll.cold())
    assert ran.code == 0, ran
    assert ran.report["serving"]["starts"] and ran.report["categories"]["kv_cache"] == ran.report["serving"]["cache_bytes"], "the memory of its child"
    assert "the server was ready, and plimsoll stopped it before the first request" in " ".join(ran.stdout.split()), ran.stdout


def test_a_server_that_is_interrupted_has_its_answer(plimsoll):
    package(plimsoll)
    plimsoll.script(SERVER, "server.py")
    run = plimsoll.start("predict", "--gpu", "l4", "--until-exit", "--", "server.py", "32768", environment=plimsoll.cold())
    assert "the server is ready\n" in iter(run.stdout.readline, "")
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, out + err
    assert "FITS l4" in out and "for keys and values" in out, out + err
    assert "interrupted: the report covers what the serving engine did until then" in err, err
