"""What vLLM plans with its memory, in its own numbers: what weights and a forward pass take, what is free for keys and values, how many tokens
that is, and how much requests of several lengths need; or why it refuses to start.

Its passes while it starts show nothing that could be enough, and an engine in a process of its own serves its parent, which would report that its
engine is dead: no run ends there because memory is steady.

vLLM (its engine V1, 0.24 to 0.33): its workers measure, one of its modules plans. Of the plan only the check whether a request fits is asked, and the
plan itself once more, for shorter requests: how layers share the cache is the engine's affair.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.engines.asked import LENGTHS, end, is_child, longest_of, telling_failures, with_flags
from plimsoll_agent.engines.servers import wait_for
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plimsoll_agent.engines.asked import Asked, Program
    from plimsoll_agent.kinds import Function
    from plimsoll_agent.run.recording import Recording
    from plimsoll_agent.run.stopping import Stopping
    from plimsoll_agent.run.training_steps import Steps

_WORKER, _ARGUMENTS, _REGISTRY = "vllm.v1.worker.gpu_worker", "vllm.engine.arg_utils", "vllm.model_executor.models.registry"
_CAPACITY = "vllm.v1.core.kv_cache_utils"
_PLANNERS = ("vllm.v1.core.kv_cache_planning", _CAPACITY)
"""Which module plans: one of its own in current versions, before that the one that computes what a plan holds."""
_VIEWS = {"vllm.v1.worker.gpu_model_runner": "_reshape_kv_cache_tensors", "vllm.v1.worker.gpu.attn_utils": "_reshape_kv_cache"}
"""What makes each layer's view of the cache: a method of `GPUModelRunner`, or a function of the module."""


def install(recording: Recording, asked: Asked, program: Program) -> None:
    """Takes its places in vLLM once that is imported."""
    flags = with_flags(asked.flags.get("vllm", {}), "create_engine_config")
    after_import(_ARGUMENTS, lambda module: flags(module.EngineArgs))
    after_import(_REGISTRY, lambda module: patch.replace(module, "_run_in_subprocess", _here))
    after_import("vllm.v1.utils", lambda module: patch.replace(module, "shutdown", _patiently))
    after_import("vllm.v1.executor.multiproc_executor", _of_several_ranks)
    for module, name in _VIEWS.items():
        after_import(module, functools.partial(_of_its_views, name))
    after_import(_WORKER, functools.partial(_in_the_worker, recording, asked, program))
    for planner in _PLANNERS:
        after_import(planner, functools.partial(_in_the_planner, recording, asked, program.stopping))


def _here(real: Function) -> Function:
    """vLLM looks at its model in this process. Another one, which imports all of vLLM once more (10 to 30 s), is for a GPU that must not be touched yet."""

    def _run_in_subprocess(ask: Function) -> Any:
        return ask()

    return _run_in_subprocess


def _of_its_views(name: str, module: Any) -> None:
    owner = getattr(module, "GPUModelRunner", module)
    if hasattr(owner, name):
        patch.replace(owner, name, _without_storage)


def _without_storage(real: Function) -> Function:
    """vLLM makes tensors there on the CPU, and asks for their strides only. Where a model has a state, such a tensor is as large as the cache: the memory
    of a machine with that GPU, and not of this one."""

    def reshape(*args: Any, **kwargs: Any) -> Any:
        with sys.modules["torch"].device("meta"):
            return real(*args, **kwargs)

    return reshape


def _in_the_worker(recording: Recording, asked: Asked, program: Program, module: Any) -> None:
    places: dict[str, Callable[[Function], Function]] = {
        "init_device": functools.partial(_begins, recording, program.steps),
        "load_model": functools.partial(_loads, recording),
        "determine_available_memory": functools.partial(_measures, recording, program),
        "compile_or_warm_up_model": functools.partial(_warms_up, recording, asked, program),
    }
    for name, place in places.items():
        if hasattr(module.Worker, name):
            patch.replace(module.Worker, name, functools.partial(telling_failures, program.failed, place))


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
        if not is_child():
            program.steps.release()
        if asked.is_search:
            end(program.stopping)
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


def _patiently(real: Function) -> Function:
    """Gives the engine's processes the time to write what they used: vLLM kills them at once unless `--shutdown-timeout` is given."""

    @guarded
    def ask(processes: Any) -> None:
        for it in processes:
            if it.is_alive():
                it.terminate()

    def shutdown(procs: Any, timeout: float | None = None) -> Any:
        ask(procs)
        wait_for(procs)
        return real(procs, timeout=timeout)

    return shutdown


def _of_several_ranks(module: Any) -> None:
    executor, name = module.MultiprocExecutor, "_ensure_worker_termination"
    if not hasattr(executor, name):
        return
    real = getattr(executor, name)

    def waiting(procs: Any) -> Any:
        wait_for(procs)
        return real(procs)

    patch.put(executor, name, staticmethod(waiting))


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
            shortest=check.needs(config, 1) if getattr(model, "original_max_model_len", None) == -1 else None,
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
        most = served if asked.flags.get("vllm", {}).get("max_model_len") is None else 2 * served
        users = functools.partial(_users, check, config, planned)
        return {"longest": longest_of(users, asked.users, most), "users": users(asked.context or served)}

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
            end(stopping)
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


def _needs(check: _Check, config: Any) -> list[tuple[int, int]]:
    """The bytes of one request of each length, by the engine's own rule."""
    asked = config.model_config.max_model_len
    return [(length, check.needs(config, length)) for length in sorted({*(it for it in LENGTHS if it < asked), asked})]
