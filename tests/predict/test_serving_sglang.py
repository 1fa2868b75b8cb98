"""SGLang's own numbers, of a package that has its names; SGLang itself is tried by hand (`docs/howto/serving.md`)."""

import json

import pytest
from described import assert_described
from harness import PYTHON
from test_serving import UVICORN

GIB = 1 << 30
TOKEN = 131072
TABLE = -(-2049 * 40964 * 4 // 512) * 512
"""Where the tokens of each request lie; the allocator rounds."""

FILES = {
    "server_args": """
from types import SimpleNamespace

def get_device_memory_capacity(device=None):
    return 23034

class ServerArgs:
    def __init__(self, context_length=None, mem_fraction_static=None, disable_cuda_graph=False):
        self.context_length, self.mem_fraction_static = context_length, mem_fraction_static
        self.kv_cache_dtype, self.max_running_requests, self.disable_cuda_graph = "auto", None, disable_cuda_graph
        self.chunked_prefill_size, self.page_size, self.device = 2048, 1, "cuda"
        self.api_key = None
        self.__post_init__()

    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def __post_init__(self):
        if self.context_length is not None and 40960 < self.context_length:
            raise ValueError(f"Warning: User-specified context_length ({self.context_length}) is greater than the derived context_length (40960). This may lead to incorrect model outputs or CUDA errors.")
        phase = lambda n: SimpleNamespace(max_bs=n, bs=None)
        self.cuda_graph_config = SimpleNamespace(decode=phase(24), prefill=phase(2048))
        self._handle_gpu_memory_settings(get_device_memory_capacity())

    def _handle_gpu_memory_settings(self, gpu_mem):
        if self.mem_fraction_static is None:
            reserved = 512 + self.chunked_prefill_size * 1.5 + (self.cuda_graph_config.decode.max_bs or 24) * 2
            self.mem_fraction_static = round((gpu_mem - reserved) / gpu_mem, 3)
""",
    "utils/common": """
import multiprocessing, os, signal, sys

def get_available_gpu_memory(device, gpu_id):
    import torch
    return torch.cuda.mem_get_info(gpu_id)[0] / (1 << 30)

def kill_process_tree(parent_pid, include_parent=True):
    for it in multiprocessing.active_children():
        it.kill()
    if include_parent:
        sys.exit(0)
""",
    "mem_cache/common": """
def get_req_to_token_extra_context_len(server_args):
    return 4
""",
    "mem_cache/memory_pool": """
import sglang.srt.mem_cache.common

class ReqToTokenPool:
    def __init__(self, size, max_context_len, device, enable_memory_saver):
        import torch
        self.req_to_token = torch.empty((size + 1, max_context_len), dtype=torch.int32, device=device)
""",
    "model_executor/model_runner_kv_cache_mixin": """
from types import SimpleNamespace
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.utils.common import get_available_gpu_memory

class Mixin:
    def _profile_available_bytes(self, before):
        rest = get_available_gpu_memory("cuda", 0) - before * (1 - self.mem_fraction_static)
        if rest <= 0:
            raise ValueError(f"Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static={self.mem_fraction_static}. Raise --mem-fraction-static above 0.138 (minimum viable = 1 - available/pre = 0.1376). If using speculative decoding, draft weights are now counted.")
        return int(rest * (1 << 30))

    def _resolve_memory_pool_config(self, before):
        available = self._profile_available_bytes(before)
        tokens = available // (65536 * self.kv_cache_dtype.itemsize)
        if tokens <= 0:
            raise RuntimeError("Not enough memory. Please try to increase --mem-fraction-static.")
        at_once = min(self.server_args.max_running_requests or 2048, tokens // 2)
        return SimpleNamespace(max_total_num_tokens=tokens, full_max_total_num_tokens=None, swa_max_total_num_tokens=None, max_running_requests=at_once)

    def init_memory_pool(self, before):
        config = self._resolve_memory_pool_config(before)
        self.req_to_token_pool = ReqToTokenPool(config.max_running_requests, self.model_config.context_len + 4, "cuda", False)
        self.token_to_kv_pool = Pool(config.max_total_num_tokens * 65536 * self.kv_cache_dtype.itemsize)
        print("Memory pool end. avail mem", get_available_gpu_memory("cuda", 0))

class Pool:
    def __init__(self, size):
        import torch
        self.size = size
        self.buffer = self.make_kv_cache()

    def make_kv_cache(self):
        import torch
        return torch.empty(self.size, dtype=torch.int8, device="cuda")

    def get_kv_size_bytes(self):
        return self.size // 2, self.size // 2
""",
    "model_executor/model_runner": """
import torch
from types import SimpleNamespace
from sglang.srt.model_executor.model_runner_kv_cache_mixin import Mixin, get_available_gpu_memory

class ModelRunner(Mixin):
    is_draft_worker, sliding_window_size, mambaish_config, pp_size, dp_size = False, None, None, 1, 1

    def __init__(self, server_args):
        self.server_args, self.mem_fraction_static, self.kv_cache_dtype = server_args, server_args.mem_fraction_static, torch.bfloat16
        if server_args.kv_cache_dtype != "auto":
            self.kv_cache_dtype = torch.float8_e5m2
        self.model_config = SimpleNamespace(context_len=server_args.context_length or 40960)
        self.before = self.init_torch_distributed()
        self.load_model()
        self.init_memory_pool(self.before)
        self.init_cuda_graphs()

    def init_torch_distributed(self):
        return get_available_gpu_memory("cuda", 0)

    def load_model(self):
        self.weight_load_mem_usage = 3.0
        self.weights = torch.empty(3 << 30, dtype=torch.int8, device="cuda")

    def init_cuda_graphs(self):
        self.eager_runner = torch.empty(64 << 20, dtype=torch.int8, device="cuda")
        self.init_prefill_cuda_graph()
        self.init_decode_cuda_graph()

    def init_prefill_cuda_graph(self):
        self.prefill_cuda_graph_runner = self.eager_runner if self.server_args.disable_cuda_graph else object()

    def init_decode_cuda_graph(self):
        if not self.server_args.disable_cuda_graph:
            self.graphs = torch.empty(256 << 20, dtype=torch.int8, device="cuda")

    def forward(self, batch):
        return torch.empty(len(batch.input_ids) << 20, dtype=torch.int8, device="cuda")
""",
    "managers/scheduler": """
import os, signal
from types import SimpleNamespace

class Scheduler:
    def __init__(self, server_args):
        import torch
        from sglang.srt.model_executor.model_runner import ModelRunner
        self.runner = ModelRunner(server_args)

    def run_event_loop(self, requests):
        import torch
        while (n := requests.get()) is not None:
            self.runner.forward(SimpleNamespace(input_ids=torch.zeros(n, device="cuda")))
            requests.task_done()

def run_scheduler_process(server_args, ready, requests):
    try:
        scheduler = Scheduler(server_args)
        ready.set()
        scheduler.run_event_loop(requests)
    except Exception as error:
        print("Scheduler hit an exception:", error)
        os.kill(os.getppid(), signal.SIGQUIT)
""",
    "entrypoints/http_server": """
import asyncio, json, multiprocessing, os, signal, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
import torch
from uvicorn.server import Server
from sglang.srt.managers.scheduler import run_scheduler_process
from sglang.srt.utils import common

_global_state = None

def _answers(requests):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input_ids"]
            requests.put(len(asked) if isinstance(asked[0], int) else sum(map(len, asked)))
            requests.join()
            self.send_response(200 if self.path == "/generate" else 404)
            self.end_headers()

        def log_message(self, *args):
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    return http.server_address[1]

def _wait_and_warmup(requests, tokens):
    requests.put(tokens)
    requests.join()
    print("The server is fired up and ready to roll!", flush=True)

def launch_server(server_args, tokens=3):
    context = multiprocessing.get_context("spawn")
    ready, requests = context.Event(), context.JoinableQueue()
    signal.signal(signal.SIGQUIT, lambda *_: common.kill_process_tree(os.getpid()))
    context.Process(target=run_scheduler_process, args=(server_args, ready, requests)).start()
    ready.wait()
    global _global_state
    _global_state = SimpleNamespace(tokenizer_manager=SimpleNamespace(server_args=server_args, max_req_input_len=server_args.context_length or 40960, is_generation=True))
    server_args.port = _answers(requests)
    server = Server()
    threading.Thread(target=lambda: _wait_and_warmup(requests, tokens), daemon=True).start()
    asyncio.run(server.serve())
    common.kill_process_tree(os.getpid(), include_parent=False)
""",
}
SCRIPT = """
import sys
import torch
from types import SimpleNamespace
from sglang.srt.server_args import ServerArgs
from sglang.srt.model_executor.model_runner import ModelRunner

share = float(sys.argv[1]) if 1 < len(sys.argv) else None
runner = ModelRunner(ServerArgs(mem_fraction_static=share, disable_cuda_graph="eager" in sys.argv))
with torch.no_grad():
    runner.forward(SimpleNamespace(input_ids=torch.zeros(256, device="cuda")))
"""
SERVER = """
import sys

if __name__ == "__main__":
    from sglang.srt.entrypoints.http_server import launch_server
    from sglang.srt.server_args import ServerArgs
    lengths = [int(it) for it in sys.argv[2:] if it.lstrip("-").isdigit()]
    launch_server(ServerArgs(lengths[1] if 1 < len(lengths) else None, float(sys.argv[1]), "eager" in sys.argv), *lengths[:1])
"""


def package(plimsoll):
    """With SGLang's names: those of 0.5.15."""
    for name, text in {**{f"sglang/srt/{name}": text for name, text in FILES.items()}, "uvicorn/server": UVICORN}.items():
        path = plimsoll.folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for it in path.relative_to(plimsoll.folder).parents[:-1]:
            (plimsoll.folder / it / "__init__.py").touch()
    plimsoll.script(SCRIPT, "one_batch.py")
    plimsoll.script(SERVER, "server.py")


def serve(plimsoll, *args):
    package(plimsoll)
    return plimsoll.predict("one_batch.py", *args, options=("--gpu", "l4", "--until-exit"))


def test_an_engine_that_starts_has_its_plan(plimsoll):
    ran = serve(plimsoll)
    assert ran.code == 0, ran
    serving, said = ran.report["serving"], " ".join(ran.stdout.split())
    assert (serving["engine"], serving["starts"], serving["weights_bytes"], serving["graphs_bytes"]) == ("sglang", True, 3 * GIB, 256 << 20), serving
    assert 0 <= serving["forward_bytes"] - (64 << 20) - TABLE < 4 << 20, serving
    cache = serving["cache_bytes"]
    assert serving["tokens"] == cache // TOKEN and ran.report["categories"]["kv_cache"] == cache + TABLE, serving
    assert {it["tokens_each"]: it["users"] for it in serving["users"]}[1024] == serving["tokens"] // 1024, serving
    assert serving["longest_pass"] == 2048 and "a pass of 2,048 tokens was run" in said, said
    assert f"starts with mem_fraction_static from 0.{round(100 * serving['least_share']):02}" in said, said
    instead = {it["flag"]: it["tokens"] for it in serving["instead"]}
    assert instead["kv_cache_dtype=fp8_e5m2"] == cache // (TOKEN // 2) and serving["tokens"] < instead["chunked_prefill_size=1024"], instead
    freed = {it["flag"]: it["freed_bytes"] for it in serving["instead"] if it["freed_bytes"]}
    assert freed == {"max_running_requests=1024": 1024 * 40964 * 4, "context_length=20480": 2049 * 20480 * 4}, freed
    assert "160.0 MiB more beside the cache with max_running_requests=1024" in said, said
    assert "FITS l4" in said and "gpu_memory_utilization" not in said and "training" not in said, said


def test_where_no_pass_was_as_long_as_they_may_be_that_is_said_first(plimsoll):
    ran = serve(plimsoll, "0.8", "eager")
    said = " ".join(ran.stdout.split())
    rest = "passes may have 2,048 tokens (chunked_prefill_size); the longest that was run had 256, so a longer one may still run out of memory"
    assert ran.code == 2 and ran.report["verdict"] == "fits_so_far" and ran.report["serving"]["longest_pass"] == 256, ran
    assert said.index("FITS SO FAR l4") < said.index(rest) < said.index("users of"), said
    ran = plimsoll.run("fit", "--gpu", "l4", "--users", "2", "--", "one_batch.py", "0.3", "eager")
    assert ran.code == 2 and ran.stdout.startswith("FITS SO FAR l4: 2 users of") and "none was run, and one may still run out of memory" in ran.stdout, ran


def test_the_smallest_share_starts_and_a_hundredth_less_is_refused_in_its_own_numbers(plimsoll):
    least = serve(plimsoll, "0.5").report["serving"]["least_share"]
    assert serve(plimsoll, str(least)).report["serving"]["starts"]
    ran = serve(plimsoll, str(round(least - 0.01, 2)))
    said = " ".join(ran.stdout.split())
    assert ran.code == 1 and ran.report["verdict"] == "does_not_fit" and not ran.report["serving"]["starts"], ran
    assert "the weights take all of the share of the card that `--mem-fraction-static` gives the engine" in said and "SGLang reports that the weights alone take 0.138" in said, said
    assert f"starts with mem_fraction_static from {least:.2f} on" in said, said


STATES = """        args, rest = self.server_args, int(rest * (1 << 30))
        if args.max_mamba_cache_size is None:
            args.max_mamba_cache_size = rest // 2 >> 20
        rest -= args.max_mamba_cache_size << 20
        if rest <= 0:
            raise RuntimeError("Not enough GPU memory for hybrid (mamba/linear-attention) state cache.")
        return rest
"""


def test_states_of_requests_are_planned_anew_for_each_share(plimsoll):
    """SGLang's plan of a hybrid model writes into its arguments how many states it keeps."""
    package(plimsoll)
    plan, runner = (plimsoll.folder / f"sglang/srt/model_executor/{it}.py" for it in ("model_runner_kv_cache_mixin", "model_runner"))
    pools = "        states = self.server_args.max_mamba_cache_size << 20\n        import torch\n        self.states = torch.empty(states, dtype=torch.int8, device='cuda')\n"
    pools += "        self.req_to_token_pool.mamba_pool = SimpleNamespace(mamba_cache=SimpleNamespace(mem_usage_bytes=lambda: states))\n        self.token_to_kv_pool ="
    plan.write_text(plan.read_text().replace("        return int(rest * (1 << 30))\n", STATES).replace("        self.token_to_kv_pool =", pools))
    runner.write_text(runner.read_text().replace("mambaish_config, pp_size", "_, pp_size").replace("(Mixin):", "(Mixin):\n    mambaish_config = True\n    _calculate_mamba_ratio = lambda self: 3"))
    arguments = plimsoll.folder / "sglang/srt/server_args.py"
    arguments.write_text(arguments.read_text().replace("self.api_key = None", "self.api_key = self.max_mamba_cache_size = None"))
    ran = plimsoll.predict("one_batch.py", "0.8", options=("--gpu", "l4", "--until-exit"))
    serving = ran.report["serving"]
    states = serving["states_bytes"] >> 20
    assert 0 <= serving["cache_bytes"] - serving["states_bytes"] < 2 << 20 and serving["forward_bytes"] < 1 << 30, serving
    assert f"states of requests (Mamba) {states / 1024:.2f} GiB" in " ".join(ran.stdout.split()), ran.stdout
    assert serving["users"][0] == {"tokens_each": 1024, "users": min(serving["tokens"] // 1024, states // 3)}, serving
    least = serving["least_share"]
    assert least < 0.2, serving
    assert plimsoll.predict("one_batch.py", str(least), options=("--gpu", "l4", "--until-exit")).report["serving"]["starts"]
    assert not plimsoll.predict("one_batch.py", str(round(least - 0.01, 2)), options=("--gpu", "l4", "--until-exit")).report["serving"]["starts"]


def test_the_largest_share_is_what_the_run_left_free(plimsoll):
    most = serve(plimsoll, "0.5").report["serving"]["most_share"]
    assert serve(plimsoll, str(most)).code == 0
    assert serve(plimsoll, str(round(most + 0.01, 2))).code == 1


def test_a_server_is_ready_once_its_first_request_is_answered(plimsoll):
    package(plimsoll)
    ran = plimsoll.predict("server.py", "0.8", options=("--gpu", "l4"), environment=plimsoll.cold())
    said = " ".join(ran.stdout.split())
    assert ran.code == 0 and ran.report["serving"]["starts"] and "FITS l4" in said, ran
    assert ran.report["categories"]["kv_cache"] == ran.report["serving"]["cache_bytes"] + TABLE, "the memory of its child"
    assert "The server is fired up" in said and "the server was ready, and plimsoll stopped it" in said, said
    plimsoll.assert_nothing_left()


@pytest.mark.parametrize("length, asked", [("40960", "2,048 tokens"), ("1500", "2,048 tokens")])
def test_a_server_without_graphs_of_prefill_is_sent_a_request_as_long_as_a_pass_may_be(plimsoll, length, asked):
    package(plimsoll)
    ran = plimsoll.predict("server.py", "0.8", "3", length, "eager", options=("--gpu", "l4"), environment=plimsoll.cold())
    said = " ".join(ran.stdout.split())
    assert ran.code == 0 and ran.report["verdict"] == "fits" and ran.report["serving"]["longest_pass"] == 2048, ran
    assert f"plimsoll stopped it after a request of {asked} that plimsoll sent to it" in said, said


TAKEN = """
        try:
            raise OSError(98, "error while attempting to bind on address ('127.0.0.1', 30000): address already in use")
        except OSError as error:
            print(error)
            await self.lifespan.shutdown()
            sys.exit(3)
"""
LIFESPAN = """
class Lifespan:
    async def shutdown(self):
        await asyncio.sleep(120)

class Server:"""


def test_a_taken_port_is_named_and_whoever_has_it_is_not_asked_for_long(plimsoll):
    package(plimsoll)
    server, engine = plimsoll.folder / "uvicorn/server.py", plimsoll.folder / "sglang/srt/entrypoints/http_server.py"
    server.write_text(UVICORN.replace("import asyncio", "import asyncio, sys").replace("        self.started = True", TAKEN).replace("class Server:", LIFESPAN).replace("self.should_exit = False", "self.should_exit, self.lifespan = False, Lifespan()"))
    asks = "def _wait_and_warmup(requests, tokens):\n    import time\n    for _ in range(120):\n        time.sleep(1)\n    common.kill_process_tree(os.getpid())\n"
    engine.write_text(engine.read_text().replace("def _wait_and_warmup(requests, tokens):\n", asks).replace("daemon=True).start()\n    asyncio", "daemon=False).start()\n    asyncio"))
    ran = plimsoll.predict("server.py", "0.8", options=("--gpu", "l4"), environment=plimsoll.cold())
    said = " ".join((ran.stdout + ran.stderr).split())
    assert ran.code == 2 and "bind on address ('127.0.0.1', 30000)" in said and "another program listens on that port" in said, ran
    assert ran.report["seconds"] < 60, ran.report["seconds"]
    plimsoll.assert_nothing_left()


def test_a_flag_that_is_refused_is_refused_before_the_engine_was_ready(plimsoll):
    """`python -m` imports the package, and PyTorch with it, before it has the path of the module."""
    package(plimsoll)
    (plimsoll.folder / "sglang/__init__.py").write_text("import torch")
    plimsoll.script("raise AssertionError('you need to specify --max-lora-rank')", "sglang/launch_server.py")
    ran = plimsoll.predict(PYTHON, "-m", "sglang.launch_server", "--enable-lora", options=("--gpu", "l4"))
    assert ran.code == 2 and "before the engine was ready" in ran.stderr and "--max-lora-rank" in ran.stderr, ran


@pytest.mark.soak
@pytest.mark.parametrize("share, tokens, code, words", [
    ("0.1", "3", 1, "DOES NOT FIT l4"),
    ("0.8", "30000", 1, "the engine ran out of memory while it served: a smaller mem_fraction_static leaves more for passes"),
    ("0.8", "-1", 2, "the script raised RuntimeError: zeros: Dimension size must be non-negative"),
])
def test_an_engine_that_ends_itself_with_code_0_has_failed(plimsoll, share, tokens, code, words):
    package(plimsoll)
    ran = plimsoll.predict("server.py", share, tokens, options=("--gpu", "l4"), environment=plimsoll.cold())
    assert ran.code == code and words in " ".join((ran.stdout + ran.stderr).split()), ran


def fit(plimsoll, *options):
    package(plimsoll)
    path = plimsoll.folder / "found.json"
    path.unlink(missing_ok=True)
    ran = plimsoll.run("fit", "--json", path, "--gpu", "l4", *options, "--", "one_batch.py", "0.3")
    if path.exists() and path.stat().st_size:
        ran.report = json.loads(path.read_text())
        assert_described("fit-serving", ran.report)
    return ran


def test_the_longest_context_and_the_flags_that_are_enough(plimsoll):
    ran = fit(plimsoll, "--users", "2")
    tokens = serve(plimsoll, "0.3").report["serving"]["tokens"]
    assert ran.code == 0 and ran.report["found"]["context"] == tokens // 2, ran
    assert f"sgl.Engine(..., context_length={tokens // 2})" in ran.stdout, ran.stdout
    ran = fit(plimsoll, "--users", str(tokens // 1024 + 1), "--context", "1024", "--allow", "mem-fraction-static")
    assert ran.code == 0 and list(ran.report["found"]["flags"]) == ["context_length", "mem_fraction_static"], ran
