"""What a serving engine plans with its memory, in the engine's own numbers: what weights and a forward pass take, what is free for keys and
values, how many tokens that is, and how much requests of several lengths need; or why the engine refuses to start. A server that is ready has
shown that: it is asked to end, because it never does by itself.

vLLM (1.x engine, since 0.8): its workers measure, `kv_cache_utils` plans. Other engines are not known here.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from plimsoll_agent.kinds import Function
    from plimsoll_agent.run.recording import Recording

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
"""Contexts that users may have, in tokens."""

FAREWELL = 30.0
"""Seconds, at most, in which the processes of an engine end."""
_SERVERS = ("vllm.entrypoints.openai.api_server",)
"""Modules of engines' HTTP servers: who has imported one, and starts uvicorn, serves."""
_WORKER, _PLAN = "vllm.v1.worker.gpu_worker", "vllm.v1.core.kv_cache_utils"


def install(recording: Recording, goal: str, paused: Callable[[], AbstractContextManager[None]]) -> None:
    """Takes its places in vLLM once that is imported; `goal` is where the run ends, as `settings` has it. While the engine warms up,
    kernels run within `paused()`."""
    if goal != "until-exit":
        after_import("uvicorn.server", lambda module: patch.replace(module.Server, "startup", functools.partial(_becomes_ready, recording)))
    after_import("vllm.v1.utils", lambda module: patch.replace(module, "shutdown", _patiently))
    after_import(_WORKER, functools.partial(_in_the_worker, recording, paused))
    after_import(_PLAN, lambda module: patch.replace(module, "get_kv_cache_configs", functools.partial(_plans, recording, module)))


def _in_the_worker(recording: Recording, paused: Callable[[], AbstractContextManager[None]], module: Any) -> None:
    patch.replace(module.Worker, "determine_available_memory", functools.partial(_measures, recording))
    if hasattr(module.Worker, "compile_or_warm_up_model"):
        patch.replace(module.Worker, "compile_or_warm_up_model", functools.partial(_warms_up, paused))


def _warms_up(paused: Callable[[], AbstractContextManager[None]], real: Function) -> Function:
    def compile_or_warm_up_model(*args: Any, **kwargs: Any) -> Any:
        with paused():
            return real(*args, **kwargs)

    return compile_or_warm_up_model


def _becomes_ready(recording: Recording, real: Function) -> Function:
    @guarded
    def stop(server: Any) -> None:
        if any(name in sys.modules for name in _SERVERS) and not server.should_exit:
            recording.note(
                "server-ready",
                "the server was ready, and plimsoll stopped it before the first request; `--until-exit` lets it run until you interrupt it",
            )
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


def _measures(recording: Recording, real: Function) -> Function:
    @guarded
    def note(worker: Any, available: int) -> None:
        of, start = worker.cache_config, worker.init_snapshot
        recording.write(
            "engine",
            name="vllm",
            total=int(start.total_memory),
            free_at_start=int(start.free_memory),
            share=float(of.gpu_memory_utilization),
            weights=int(worker.model_runner.model_memory_usage),
            forward=_number(worker, "peak_activation_memory"),
            beside=_number(worker, "non_torch_memory"),
            graphs=_number(worker, "cudagraph_memory_estimate"),
            available=int(available),
        )

    def determine_available_memory(worker: Any) -> Any:
        available = real(worker)
        note(worker, available)
        return available

    return determine_available_memory


def _number(worker: Any, name: str) -> int | None:
    value = getattr(worker, name, None)
    return None if value is None else int(value)


def _plans(recording: Recording, module: Any, real: Function) -> Function:
    @guarded
    def note(config: Any, groups: Any, **more: Any) -> None:
        cache, model = config.cache_config, config.model_config
        recording.write(
            "engine",
            name="vllm",
            longest_asked=int(model.max_model_len),
            dtype=str(cache.cache_dtype),
            batched_tokens=int(config.scheduler_config.max_num_batched_tokens),
            eager=bool(model.enforce_eager),
            needs=_needs(module, config, groups),
            **more,
        )

    @guarded
    def note_refused(config: Any, specs: Any, error: ValueError) -> None:
        note(config, module.get_kv_cache_groups(config, dict(specs[0])), refused=str(error))

    @guarded
    def note_planned(config: Any, planned: Any) -> None:
        least = min(planned, key=lambda it: it.num_blocks)
        tokens, _ = module.get_kv_cache_capacity(config, least)
        sizes = [int(it.size) for it in least.kv_cache_tensors]
        note(config, least.kv_cache_groups, blocks=int(least.num_blocks), cache=sum(sizes), tokens=int(tokens))

    def get_kv_cache_configs(config: Any, specs: Any, available: Any) -> Any:
        try:
            planned = real(config, specs, available)
        except ValueError as error:
            note_refused(config, specs, error)
            raise
        note_planned(config, planned)
        return planned

    return get_kv_cache_configs


def _needs(module: Any, config: Any, groups: Any) -> list[tuple[int, int]]:
    """The bytes of one request of each length, by the engine's own rule."""
    model = config.model_config
    asked = model.max_model_len
    res = []
    try:
        for length in sorted({*(it for it in LENGTHS if it < asked), asked}):
            model.max_model_len = length
            res.append((length, int(module._max_memory_usage_bytes_from_groups(config, groups))))
    finally:
        model.max_model_len = asked
    return res
