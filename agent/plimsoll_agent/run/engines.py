"""What a serving engine plans with its memory, in the engine's own numbers: what weights and a forward pass take, what is free for keys and
values, how many tokens that is, and how much requests of several lengths need; or why the engine refuses to start. A server that is ready has
shown that: it is asked to end, because it never does by itself.

A search (`plimsoll fit`) asks more of it, as JSON: `flags`, which the engine is started with instead of its own; `users` and `context`, for which it
says what its cache holds; and it ends the run as soon as that is known: where the cache holds too little, once it is planned; else once the
engine is ready.

An engine's passes while it starts show nothing that could be enough, and one in a process of its own serves its parent, which would report that its
engine is dead: no run ends there because memory is steady.

vLLM (its engine V1, 0.24 to 0.33): its workers measure, one of its modules plans. Of the plan only the check whether a request fits is asked, and the
plan itself once more, for shorter requests: how layers share the cache is the engine's affair. Of SGLang only when it is ready is known here.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from plimsoll_agent.kinds import Function, Torch
    from plimsoll_agent.run.recording import Recording
    from plimsoll_agent.run.stopping import Stopping
    from plimsoll_agent.run.training_steps import Steps

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
"""Contexts that users may have, in tokens."""

FAREWELL = 30.0
"""Seconds, at most, in which the processes of an engine end. vLLM gives the ranks of one engine 5."""
_ENGINES = ("vllm",)
"""Who has imported one and starts uvicorn, serves it: with the engine's own server, which may be `__main__`, or with one of the user's. Others serve
a model that they hold themselves, if they have used the GPU by then."""
_WORKER, _ARGUMENTS, _REGISTRY = "vllm.v1.worker.gpu_worker", "vllm.engine.arg_utils", "vllm.model_executor.models.registry"
_CAPACITY = "vllm.v1.core.kv_cache_utils"
_PLANNERS = ("vllm.v1.core.kv_cache_planning", _CAPACITY)
"""Which module plans: one of its own in current versions, before that the one that computes what a plan holds."""


@dataclass(frozen=True)
class Asked:
    """What a search asks of the engine."""

    is_search: bool = False
    flags: dict[str, Any] = field(default_factory=dict)
    """By the names of vLLM's `EngineArgs`."""
    users: int = 1
    """How many the cache is to hold, of `context` tokens each, or of as many as the engine is to serve."""
    context: int | None = None


def asked_by(text: str) -> Asked:
    """What the environment says; nothing if it is empty."""
    return Asked(is_search=True, **json.loads(text)) if text else Asked()


@dataclass(frozen=True)
class Program:
    """What the engine's process is told, beside the recording."""

    steps: Steps
    stopping: Stopping
    failed: Callable[[BaseException], None]
    """An error ends this process, and its program does not raise it."""
    paused: Callable[[], AbstractContextManager[None]]
    """Kernels are launched within, while the engine measures its passes and graphs, and warms up."""


def install(torch: Torch, recording: Recording, goal: str, asked: Asked, program: Program) -> None:
    """Takes its places in vLLM once that is imported; `goal` is where the run ends, as `settings` has it."""
    if asked.flags:
        after_import(_ARGUMENTS, lambda module: patch.replace(module.EngineArgs, "create_engine_config", functools.partial(_with_flags, asked.flags)))
    after_import(_REGISTRY, lambda module: patch.replace(module, "_run_in_subprocess", _here))
    servers: list[Any] = []
    ready = functools.partial(_becomes_ready, torch, recording, goal, program.steps, servers)
    after_import("uvicorn.server", lambda module: patch.replace(module.Server, "startup", ready))
    after_import("sglang.srt.model_executor.model_runner", lambda module: _of_an_unknown_engine(recording, program.steps))
    after_import("sglang.srt.utils.common", lambda module: patch.replace(module, "kill_process_tree", _asking_first))
    if goal != "until-exit":
        served = functools.partial(_has_served, servers)
        after_import("sglang.srt.entrypoints.http_server", lambda module: patch.replace(module, "_wait_and_warmup", served))
    after_import("vllm.v1.utils", lambda module: patch.replace(module, "shutdown", _patiently))
    after_import("vllm.v1.executor.multiproc_executor", _of_several_ranks)
    after_import(_WORKER, functools.partial(_in_the_worker, recording, asked, program))
    for planner in _PLANNERS:
        after_import(planner, functools.partial(_in_the_planner, recording, asked, program.stopping))


def _here(real: Function) -> Function:
    """vLLM looks at its model in this process. Another one, which imports all of vLLM once more (10 to 30 s), is for a GPU that must not be touched yet."""

    def _run_in_subprocess(ask: Function) -> Any:
        return ask()

    return _run_in_subprocess


def _with_flags(flags: dict[str, Any], real: Function) -> Function:
    def create_engine_config(arguments: Any, *args: Any, **kwargs: Any) -> Any:
        for name, value in flags.items():
            setattr(arguments, name, value)
        return real(arguments, *args, **kwargs)

    return create_engine_config


def _end(stopping: Stopping) -> None:
    """The search knows what it asked: the run ends here."""
    stopping.request()
    stopping.here(threading.get_ident())


def _in_the_worker(recording: Recording, asked: Asked, program: Program, module: Any) -> None:
    places: dict[str, Callable[[Function], Function]] = {
        "init_device": functools.partial(_begins, recording, program.steps),
        "load_model": functools.partial(_loads, recording),
        "determine_available_memory": functools.partial(_measures, recording, program),
        "compile_or_warm_up_model": functools.partial(_warms_up, recording, asked, program),
    }
    for name, place in places.items():
        if hasattr(module.Worker, name):
            patch.replace(module.Worker, name, functools.partial(_telling_failures, program.failed, place))


def _telling_failures(failed: Callable[[BaseException], None], place: Callable[[Function], Function], real: Function) -> Function:
    """A worker in a process of its own logs what it raised, and ends as if all were well."""
    placed = place(real)

    def method(*args: Any, **kwargs: Any) -> Any:
        try:
            return placed(*args, **kwargs)
        except Exception as error:
            if _is_child():
                failed(error)
            raise

    return method


def _is_child() -> bool:
    """Whether this process is one of multiprocessing's, which its parent waits for."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    return multiprocessing is not None and multiprocessing.parent_process() is not None


def _begins(recording: Recording, steps: Steps, real: Function) -> Function:
    @guarded
    def note_refused(worker: Any, error: ValueError) -> None:
        if "gpu memory utilization" in str(error).lower():
            recording.write("engine", name="vllm", share=float(worker.cache_config.gpu_memory_utilization), refused=str(error))

    @guarded
    def note(worker: Any) -> None:
        recording.serves()
        recording.write("engine", name="vllm", share=float(worker.cache_config.gpu_memory_utilization))

    def init_device(worker: Any, *args: Any, **kwargs: Any) -> Any:
        steps.hold()
        try:
            result = real(worker, *args, **kwargs)
        except ValueError as error:
            note_refused(worker, error)
            raise
        note(worker)
        return result

    return init_device


def _warms_up(recording: Recording, asked: Asked, program: Program, real: Function) -> Function:
    @guarded
    def note_ready() -> None:
        recording.write("engine", name="vllm", ready=True, free_when_ready=int(sys.modules["torch"].cuda.mem_get_info()[0]))

    def compile_or_warm_up_model(*args: Any, **kwargs: Any) -> Any:
        with program.paused():
            result = real(*args, **kwargs)
        note_ready()
        if not _is_child():
            program.steps.release()
        if asked.is_search:
            _end(program.stopping)
        return result

    return compile_or_warm_up_model


def _loads(recording: Recording, real: Function) -> Function:
    @guarded
    def note(worker: Any) -> None:
        recording.write("engine", name="vllm", weights=int(worker.model_runner.model_memory_usage))

    def load_model(worker: Any, *args: Any, **kwargs: Any) -> Any:
        result = real(worker, *args, **kwargs)
        note(worker)
        return result

    return load_model


@guarded
def _of_an_unknown_engine(recording: Recording, steps: Steps) -> None:
    """SGLang ends with code 0 also where its scheduler has crashed: nothing of it is an answer."""
    steps.hold()
    recording.note("server-without-requests", "plimsoll does not know SGLang: the report has what its processes allocated, whether or not they could answer a request")


def _has_served(servers: list[Any], real: Function) -> Function:
    """SGLang sends its server a first request, and ends it all if that fails."""

    @guarded
    def stop() -> None:
        for server in servers:
            server.should_exit = True

    def _wait_and_warmup(*args: Any, **kwargs: Any) -> Any:
        result = real(*args, **kwargs)
        stop()
        return result

    return _wait_and_warmup


def _asking_first(real: Function) -> Function:
    """Gives the engine's processes the time to write what they used: SGLang kills them at once."""

    @guarded
    def ask() -> None:
        multiprocessing = sys.modules.get("multiprocessing")
        children = multiprocessing.active_children() if multiprocessing is not None else []
        for child in children:
            child.terminate()
        _wait_for(children)

    def kill_process_tree(*args: Any, **kwargs: Any) -> Any:
        ask()
        return real(*args, **kwargs)

    return kill_process_tree


def _becomes_ready(torch: Torch, recording: Recording, goal: str, steps: Steps, servers: list[Any], real: Function) -> Function:
    @guarded
    def stop(server: Any) -> None:
        # A training may have a server beside it that shows how it goes.
        if server.should_exit or steps.has_optimizer:
            return
        if "sglang" in sys.modules and goal != "until-exit":
            servers.append(server)
            return
        if goal == "until-exit":
            recording.note("server-runs", "the script is a server: the report covers the requests until it was ended")
            return
        if any(name in sys.modules for name in _ENGINES):
            text = "the server was ready, and plimsoll stopped it before the first request; `--until-exit` lets it run until you interrupt it"
            recording.note("server-ready", text)
        elif torch.cuda.is_initialized():
            text = "the server was ready, and plimsoll stopped it before the first request, whose memory is not counted: send some with `--until-exit`, and end it with Ctrl-C"
            recording.note("server-without-requests", text)
        else:
            return
        server.should_exit = True

    async def startup(server: Any, *args: Any, **kwargs: Any) -> None:
        await real(server, *args, **kwargs)
        stop(server)

    return startup


def _patiently(real: Function) -> Function:
    """Gives the engine's processes the time to write what they used: vLLM kills them at once unless `--shutdown-timeout` is given."""

    def shutdown(procs: Any, timeout: float | None = None) -> Any:
        return real(procs, timeout=FAREWELL if timeout is None else max(timeout, FAREWELL))

    return shutdown


def _of_several_ranks(module: Any) -> None:
    executor, name = module.MultiprocExecutor, "_ensure_worker_termination"
    if not hasattr(executor, name):
        return
    real = getattr(executor, name)

    def waiting(procs: Any) -> Any:
        _wait_for(procs)
        return real(procs)

    patch.put(executor, name, staticmethod(waiting))


@guarded
def _wait_for(procs: Any) -> None:
    until = time.monotonic() + FAREWELL
    for process in procs:
        process.join(max(0.0, until - time.monotonic()))


def _measures(recording: Recording, program: Program, real: Function) -> Function:
    @guarded
    def note(worker: Any, available: int) -> None:
        of, start = worker.cache_config, worker.init_snapshot
        weights, graphs = int(worker.model_runner.model_memory_usage), _number(worker, "cudagraph_memory_estimate")
        forward, beside, consumed = _number(worker, "peak_activation_memory"), _number(worker, "non_torch_memory"), _number(worker, "total_consumed")
        if consumed is not None and forward is not None:
            # Current versions: what was taken as a whole, with the weights and what PyTorch keeps of a pass; and graphs in the pass, where they count.
            cuda = sys.modules["torch"].cuda
            beside = max(0, int(start.free_memory) - cuda.mem_get_info()[0] - cuda.memory_reserved())
            forward += consumed - weights - beside
            if sys.modules["vllm.envs"].VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS:
                forward -= graphs or 0
        recording.write(
            "engine",
            name="vllm",
            total=int(start.total_memory),
            free_at_start=int(start.free_memory),
            share=float(of.gpu_memory_utilization),
            weights=weights,
            forward=forward,
            beside=beside,
            graphs=graphs,
            available=int(available),
        )

    def determine_available_memory(worker: Any) -> Any:
        with program.paused():
            available = real(worker)
        note(worker, available)
        return available

    return determine_available_memory


def _number(worker: Any, name: str) -> int | None:
    value = getattr(worker, name, None)
    return None if value is None else int(value)


def _in_the_planner(recording: Recording, asked: Asked, stopping: Stopping, module: Any) -> None:
    if not hasattr(module, "get_kv_cache_configs"):
        return
    check = _Check()
    patch.replace(module, "_check_enough_kv_cache_memory", check.noting)
    patch.replace(module, "get_kv_cache_configs", functools.partial(_plans, recording, asked, stopping, check))


class _Check:
    """The engine's own check whether a request fits: for each worker, what is free and what computes how much a request of the longest length needs."""

    def __init__(self) -> None:
        self._made: list[tuple[int, Callable[[], int]]] = []

    def noting(self, real: Function) -> Function:
        def _check_enough_kv_cache_memory(available: Any, needed: Any, *args: Any, **kwargs: Any) -> Any:
            self._made.append((int(available), needed))
            return real(available, needed, *args, **kwargs)

        return _check_enough_kv_cache_memory

    def forget(self) -> None:
        self._made.clear()

    def needs(self, config: Any, length: int) -> int:
        """The bytes of one request of so many tokens."""
        with _longest(config, length):
            return max((int(needed()) for _, needed in self._made), default=0)

    def holds(self, config: Any, length: int) -> bool:
        """Whether each worker has as much as one request of so many tokens needs."""
        with _longest(config, length):
            return all(needed() <= available for available, needed in self._made)


@contextlib.contextmanager
def _longest(config: Any, length: int) -> Iterator[None]:
    """The engine is to serve requests of so many tokens, within."""
    model = config.model_config
    asked = model.max_model_len
    model.max_model_len = length
    try:
        yield
    finally:
        model.max_model_len = asked


def _plans(recording: Recording, asked: Asked, stopping: Stopping, check: _Check, real: Function) -> Function:
    def note(config: Any, planned: Function, **more: Any) -> dict[str, Any]:
        cache, model = config.cache_config, config.model_config
        if asked.is_search:
            more.update(held(config, planned()))
        recording.write(
            "engine",
            name="vllm",
            longest_asked=int(model.max_model_len),
            dtype=str(cache.cache_dtype),
            batched_tokens=int(config.scheduler_config.max_num_batched_tokens),
            at_once=int(getattr(config.scheduler_config, "max_num_seqs", 0)) or None,
            eager=bool(model.enforce_eager),
            needs=_needs(check, config),
            **more,
        )
        return more

    @guarded
    def note_refused(config: Any, planned: Function, error: ValueError) -> None:
        note(config, planned, refused=str(error))

    @guarded
    def note_planned(config: Any, planned: Any) -> bool:
        least = _least(planned)
        tokens, _ = _capacity(config, least)
        noted = note(config, lambda: least, blocks=int(least.num_blocks), cache=_bytes(least), tokens=int(tokens))
        return not asked.is_search or asked.users <= noted["users"]

    def held(config: Any, planned: Any) -> dict[str, Any]:
        """What a search asked: of how many tokens the cache holds its users, and how many of its context. More tokens than the engine is to serve are
        asked, too, where the search chose that length: it may have measured less than with a longer one."""
        served = int(config.model_config.max_model_len)
        most = served if asked.flags.get("max_model_len") is None else 2 * served
        users = functools.partial(_users, check, config, planned)
        return {"longest": _longest_of(users, asked.users, most), "users": users(asked.context or served)}

    def get_kv_cache_configs(config: Any, specs: Any, available: Any, *args: Any, **kwargs: Any) -> Any:
        def of_the_shortest() -> Any:
            """The plan for requests of one token, which has as many blocks."""
            with _longest(config, 1):
                try:
                    return _least(real(config, specs, available, *args, **kwargs))
                except ValueError:
                    return None

        check.forget()
        try:
            planned = real(config, specs, available, *args, **kwargs)
        except ValueError as error:
            note_refused(config, of_the_shortest, error)
            raise
        if note_planned(config, planned) is False:
            _end(stopping)
        return planned

    return get_kv_cache_configs


def _least(planned: Any) -> Any:
    """Of the plans of all workers the one with the fewest blocks."""
    return min(planned, key=lambda it: it.num_blocks)


def _bytes(planned: Any) -> int:
    """What a planned cache takes. Where layers lie in one allocation, each tensor names it whole: in 0.33 always, in 0.24 where blocks are packed."""
    sizes = [int(it.size) for it in planned.kv_cache_tensors]
    is_one = all(hasattr(it, "layer_stride") or getattr(it, "block_stride", 0) for it in planned.kv_cache_tensors)
    return max(sizes, default=0) if is_one else sum(sizes)


def _capacity(config: Any, planned: Any) -> Any:
    """By the engine's own rule, how many tokens a planned cache holds, and how many of the longest requests at once."""
    return sys.modules[_CAPACITY].get_kv_cache_capacity(config, planned)


def _users(check: _Check, config: Any, planned: Any, length: int) -> int:
    """How many requests of so many tokens, if the engine starts for such at all."""
    if planned is None or not check.holds(config, length):
        return 0
    with _longest(config, length):
        return int(_capacity(config, planned)[1])


def _longest_of(users_of: Callable[[int], int], users: int, most: int) -> int:
    """The longest request of which a cache holds so many, up to `most` tokens."""
    least = 0
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if users <= users_of(middle) else (least, middle - 1)
    return least


def _needs(check: _Check, config: Any) -> list[tuple[int, int]]:
    """The bytes of one request of each length, by the engine's own rule."""
    asked = config.model_config.max_model_len
    return [(length, check.needs(config, length)) for length in sorted({*(it for it in LENGTHS if it < asked), asked})]
