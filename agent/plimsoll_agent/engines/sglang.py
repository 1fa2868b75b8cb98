"""What SGLang plans with its memory, in its own numbers.

It makes no forward pass before it plans: keys and values get what is free once the weights are loaded, less the part of what was free before that
`mem_fraction_static` leaves to passes, CUDA graphs and the rest. What it would plan with other values its own functions compute, before anything is
allocated: from which share on it starts, how many tokens a cache in 8 bits holds, what other flags make of a share that nobody set.

Its scheduler is a process of its own, which logs what it raised; its parent then ends itself, and everything else, with code 0. Its server sends itself
a first request of some tokens, and is ready once that is answered. It is then sent one as long as a pass may be, because users will.

SGLang 0.5.15. Of tensor parallel ranks each plans, from what the fullest card has free.
"""

from __future__ import annotations

import copy
import functools
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.engines.asked import LENGTHS, end, is_child, longest_of, telling_failures, with_flags
from plimsoll_agent.engines.servers import wait_for
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from plimsoll_agent.engines.asked import Asked, Program
    from plimsoll_agent.engines.servers import Servers
    from plimsoll_agent.kinds import Function
    from plimsoll_agent.run.recording import Recording

_RUNNER, _PLAN = "sglang.srt.model_executor.model_runner", "sglang.srt.model_executor.model_runner_kv_cache_mixin"
_SCHEDULER, _SERVER = "sglang.srt.managers.scheduler", "sglang.srt.entrypoints.http_server"
_GIB = 1 << 30
_IN_8_BITS = "fp8_e5m2"


def install(recording: Recording, asked: Asked, program: Program, servers: Servers) -> None:
    """Takes its places in SGLang once that is imported."""
    flags = with_flags(asked.flags.get("sglang", {}), "__post_init__")
    after_import("sglang.srt.server_args", lambda module: flags(module.ServerArgs))
    engine = _Engine(recording, asked, program)
    after_import(_PLAN, engine.in_the_plan)
    after_import(_RUNNER, engine.in_the_runner)
    after_import(_SCHEDULER, engine.in_the_scheduler)
    parent = _Parent(recording, program, servers)
    after_import("sglang.srt.utils.common", lambda module: patch.replace(module, "kill_process_tree", parent.ends_all))
    after_import(_SERVER, lambda module: patch.replace(module, "_wait_and_warmup", functools.partial(parent.has_served, module)))


class _Engine:
    """That of this process, which has the device."""

    def __init__(self, recording: Recording, asked: Asked, program: Program) -> None:
        self._recording, self._asked, self._program = recording, asked, program
        self._weights = self._graphs = self._states = self._available = self._longest_pass = 0
        self._last_free = self._free_before_plan = 0.0
        self._has_scheduler = False
        self._supposed: float | None = None
        """What is free while the engine is asked what it would plan."""

    def in_the_plan(self, module: Any) -> None:
        patch.replace(module, "get_available_gpu_memory", self._free)

    def in_the_runner(self, module: Any) -> None:
        places: dict[str, Callable[[Function], Function]] = {
            "init_torch_distributed": self._begins,
            "load_model": self._loads,
            "_profile_available_bytes": self._profiles,
            "_resolve_memory_pool_config": self._plans,
            "init_memory_pool": self._allocates,
            "init_prefill_cuda_graph": self._captures,
            "init_decode_cuda_graph": self._captures,
            "init_cuda_graphs": self._warms_up,
            "forward": self._passes,
        }
        for name, place in places.items():
            if hasattr(module.ModelRunner, name):
                patch.replace(module.ModelRunner, name, place)

    def in_the_scheduler(self, module: Any) -> None:
        for name, place in (("__init__", self._prepares), ("run_event_loop", self._serves)):
            patch.replace(module.Scheduler, name, functools.partial(telling_failures, self._program.failed, place))

    def _prepares(self, real: Function) -> Function:
        def __init__(*args: Any, **kwargs: Any) -> None:
            self._has_scheduler = True
            real(*args, **kwargs)

        return __init__

    def _write(self, **fields: Any) -> None:
        self._recording.write("engine", name="sglang", **fields)

    def _free(self, real: Function) -> Function:
        def get_available_gpu_memory(*args: Any, **kwargs: Any) -> Any:
            if self._supposed is not None:
                return self._supposed
            self._last_free = float(real(*args, **kwargs))
            return self._last_free

        return get_available_gpu_memory

    def _begins(self, real: Function) -> Function:
        @guarded
        def note(runner: Any, free: float) -> None:
            if not runner.is_draft_worker:
                self._recording.serves()
                total = sys.modules["torch"].cuda.mem_get_info()[1]
                self._write(total=int(total), free_at_start=int(free * _GIB), share=float(runner.mem_fraction_static))

        def init_torch_distributed(runner: Any) -> Any:
            self._program.steps.hold()
            free = real(runner)
            note(runner, free)
            return free

        return init_torch_distributed

    def _loads(self, real: Function) -> Function:
        @guarded
        def note(runner: Any) -> None:
            # A draft's model comes after the other.
            self._weights += int(runner.weight_load_mem_usage * _GIB)
            self._write(weights=self._weights)

        def load_model(runner: Any, *args: Any, **kwargs: Any) -> Any:
            result = real(runner, *args, **kwargs)
            note(runner)
            return result

        return load_model

    def _profiles(self, real: Function) -> Function:
        def _profile_available_bytes(runner: Any, *args: Any, **kwargs: Any) -> Any:
            available = real(runner, *args, **kwargs)
            if self._supposed is None:
                self._available, self._free_before_plan = int(available), self._last_free
            return available

        return _profile_available_bytes

    def _plans(self, real: Function) -> Function:
        @guarded
        def note(runner: Any, what_if: _WhatIf, config: Any, **more: Any) -> None:
            args = runner.server_args
            length = int(runner.model_config.context_len)
            if self._asked.is_search:
                more.update(self._held(runner, config, length))
            self._write(
                available=self._available,
                longest_asked=length,
                dtype=str(args.kv_cache_dtype),
                batched_tokens=int(args.chunked_prefill_size),
                needs=[] if config is None else [(it, _share_of(runner, config, it, self._available)) for it in _lengths(length)],
                least=what_if.least(1),
                least_for_longest=what_if.least(length),
                **more,
            )

        @guarded
        def note_planned(runner: Any, what_if: _WhatIf, config: Any) -> None:
            tokens = _tokens(config)
            more: dict[str, Any] = {"blocks": tokens // int(runner.server_args.page_size), "tokens": tokens, "at_once": int(config.max_running_requests), "own_share": what_if.is_own_share()}
            more["instead"] = what_if.instead(config)
            note(runner, what_if, config, **more)

        def _resolve_memory_pool_config(runner: Any, before: float) -> Any:
            what_if = _WhatIf(self, runner, functools.partial(real, runner, before))
            try:
                config = real(runner, before)
            except (ValueError, RuntimeError) as error:
                if "memory" in str(error).lower() and not isinstance(error, sys.modules["torch"].OutOfMemoryError):
                    note(runner, what_if, None, refused=str(error))
                raise
            note_planned(runner, what_if, config)
            return config

        return _resolve_memory_pool_config

    def _held(self, runner: Any, config: Any, length: int) -> dict[str, int]:
        """What a search asked; longer requests than a length that the search chose, too: the cache is the same. The run goes on also where that is
        too little, because only an engine that is ready shows which share it may have."""
        most = length if self._asked.flags.get("sglang", {}).get("context_length") is None else 2 * length
        users = functools.partial(_users, runner, config)
        return {"longest": longest_of(users, self._asked.users, most), "users": users(self._asked.context or length)}

    def _allocates(self, real: Function) -> Function:
        @guarded
        def note(runner: Any) -> None:
            size = runner.token_to_kv_pool.get_kv_size_bytes()
            states = getattr(runner.req_to_token_pool, "mamba_pool", None)
            if states is not None:
                self._states = int(states.mamba_cache.mem_usage_bytes())
            if not runner.is_draft_worker:
                self._write(cache=int(sum(size) if isinstance(size, tuple) else size), states=self._states or None)

        def init_memory_pool(runner: Any, *args: Any, **kwargs: Any) -> Any:
            result = real(runner, *args, **kwargs)
            note(runner)
            return result

        return init_memory_pool

    def _captures(self, real: Function) -> Function:
        @guarded
        def note(runner: Any, before: int) -> None:
            self._graphs += before - _free_now()
            # While it captures those of prefill, it runs passes of up to so many tokens.
            if getattr(runner, "prefill_cuda_graph_runner", None) not in (None, getattr(runner, "eager_runner", None)):
                self._longest_pass = max(self._longest_pass, int(runner.server_args.cuda_graph_config.prefill.max_bs or 0))

        def capture(runner: Any, *args: Any, **kwargs: Any) -> Any:
            before = _free_now()
            result = real(runner, *args, **kwargs)
            note(runner, before)
            return result

        return capture

    def _warms_up(self, real: Function) -> Function:
        def init_cuda_graphs(runner: Any, *args: Any, **kwargs: Any) -> Any:
            with self._program.paused():
                result = real(runner, *args, **kwargs)
            # A scheduler has drafts to prepare, too.
            if not self._has_scheduler:
                self._is_ready()
            return result

        return init_cuda_graphs

    def _serves(self, real: Function) -> Function:
        def run_event_loop(*args: Any, **kwargs: Any) -> Any:
            self._is_ready()
            return real(*args, **kwargs)

        return run_event_loop

    def _is_ready(self) -> None:
        self._note_ready()
        if self._asked.is_search:
            end(self._program.stopping)
        if not is_child():
            self._program.steps.release()

    @guarded
    def _note_ready(self) -> None:
        free = _free_now()
        rest = int(self._free_before_plan * _GIB) - self._available - self._states - self._graphs - free
        self._write(ready=True, free_when_ready=free, graphs=self._graphs, forward=max(0, rest), longest_pass=self._longest_pass or None)

    def _passes(self, real: Function) -> Function:
        @guarded
        def note(batch: Any) -> None:
            tokens = 0 if batch.input_ids is None else int(batch.input_ids.shape[0])
            if self._longest_pass < tokens:
                self._longest_pass = tokens
                self._write(longest_pass=tokens)

        def forward(runner: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
            result = real(runner, batch, *args, **kwargs)
            note(batch)
            return result

        return forward


class _WhatIf:
    """What the engine would plan with other values, by its own functions."""

    def __init__(self, engine: _Engine, runner: Any, plan: Callable[[], Any]) -> None:
        self._engine, self._runner, self._plan = engine, runner, plan
        # A plan writes into its arguments: how many states of Mamba there are, say.
        self._args = copy.copy(runner.server_args)

    def _tokens(self, **changed: Any) -> int:
        """With other values of the runner; zero if it refuses."""
        config = self._config(**changed)
        return 0 if config is None else _tokens(config)

    def _config(self, **changed: Any) -> Any:
        """None if it refuses, or if it would ask other stages of a pipeline."""
        runner, engine = self._runner, self._engine
        if runner.pp_size != 1:
            return None
        changed.setdefault("server_args", copy.copy(self._args))
        was = {name: getattr(runner, name) for name in changed}
        disabled = logging.root.manager.disable
        for name, value in changed.items():
            setattr(runner, name, value)
        engine._supposed = engine._last_free
        logging.disable(logging.WARNING)
        try:
            return self._plan()
        except (ValueError, RuntimeError, AssertionError):
            return None
        finally:
            logging.disable(disabled)
            engine._supposed = None
            for name, value in was.items():
                setattr(runner, name, value)

    def least(self, tokens: int) -> float | None:
        """The smallest share, in hundredths, with which the cache holds so many."""
        if not self._engine._last_free or self._tokens(mem_fraction_static=1.0) < tokens:
            return None
        least, most = 0, 100
        while 1 < most - least:
            middle = (least + most) // 2
            least, most = (least, middle) if tokens <= self._tokens(mem_fraction_static=middle / 100) else (middle, most)
        return most / 100

    def instead(self, config: Any) -> list[tuple[str, int, int]]:
        """Other flags: the tokens, and how many bytes less the table takes in which each request has the places of its tokens."""
        torch, runner = sys.modules["torch"], self._runner
        res = []
        if runner.pp_size != 1:
            return []
        if runner.kv_cache_dtype.itemsize == 2:
            res.append(("kv_cache_dtype=" + _IN_8_BITS, self._tokens(kv_cache_dtype=torch.float8_e5m2), 0))
        for flag, share in self._shares():
            res.append((flag, self._tokens(mem_fraction_static=share), 0))
        table = self._table(config, runner.model_config)
        for flag, changed in self._smaller_tables(config):
            smaller = self._config(**changed)
            if smaller is not None:
                res.append((flag, _tokens(smaller), table - self._table(smaller, changed.get("model_config", runner.model_config))))
        return res

    def _smaller_tables(self, config: Any) -> list[tuple[str, dict[str, Any]]]:
        runner = self._runner
        args, model = copy.copy(self._args), copy.copy(runner.model_config)
        args.max_running_requests = int(config.max_running_requests) * int(runner.dp_size) // 2
        model.context_len = int(model.context_len) // 2
        return [("max_running_requests=%d" % args.max_running_requests, {"server_args": args}), ("context_length=%d" % model.context_len, {"model_config": model})]

    def _table(self, config: Any, model: Any) -> int:
        """Its bytes, by the engine's own class, which allocates nothing on this device."""
        pool, common = sys.modules["sglang.srt.mem_cache.memory_pool"], sys.modules["sglang.srt.mem_cache.common"]
        length = int(model.context_len) + int(common.get_req_to_token_extra_context_len(self._runner.server_args))
        table = pool.ReqToTokenPool(int(config.max_running_requests), length, "meta", False).req_to_token
        return int(table.numel() * table.element_size())

    def is_own_share(self) -> bool:
        """Whether nobody set `mem_fraction_static`, or to what the engine would choose."""
        args = self._runner.server_args
        return bool(self._share(args.chunked_prefill_size, args.cuda_graph_config.decode.max_bs) == args.mem_fraction_static)

    def _shares(self) -> list[tuple[str, float]]:
        """What the engine makes of other flags where it chose its share."""
        args = self._runner.server_args
        chunk, batch = int(args.chunked_prefill_size), args.cuda_graph_config.decode.max_bs
        if not self.is_own_share():
            return []
        res = [("chunked_prefill_size=%d" % (chunk // 2), self._share(chunk // 2, batch))] if 1 < chunk else []
        if batch is not None and 1 < batch:
            res.append(("cuda_graph_max_bs_decode=%d" % (batch // 2), self._share(chunk, batch // 2)))
        return [(flag, share) for flag, share in res if share is not None and args.mem_fraction_static < share]

    def _share(self, chunk: int, batch: int | None) -> float | None:
        args = copy.copy(self._runner.server_args)
        graphs = args.cuda_graph_config = copy.deepcopy(args.cuda_graph_config)
        args.mem_fraction_static, args.chunked_prefill_size = None, chunk
        graphs.decode.max_bs = batch
        graphs.decode.bs = graphs.prefill.max_bs = graphs.prefill.bs = None
        args._handle_gpu_memory_settings(sys.modules["sglang.srt.server_args"].get_device_memory_capacity(args.device))
        share = args.mem_fraction_static
        return None if share is None else float(share)


def _free_now() -> int:
    return int(sys.modules["torch"].cuda.mem_get_info()[0])


def _tokens(config: Any) -> int:
    """Of a plan: of how many tokens a request may be. Where no layer attends to all tokens, the pool of those that do is empty."""
    return int(config.full_max_total_num_tokens or config.max_total_num_tokens)


def _paged(runner: Any, length: int) -> int:
    page = int(runner.server_args.page_size)
    return -(-length // page) * page


def _users(runner: Any, config: Any, length: int) -> int:
    """How many requests of so many tokens are held at once: of a sliding window the layers that have one hold no more tokens than that."""
    if config is None:
        return 0
    whole = _paged(runner, length)
    users = _tokens(config) // whole
    windows = config.swa_max_total_num_tokens
    if windows and config.full_max_total_num_tokens:
        users = min(users, windows // _paged(runner, min(length, int(runner.sliding_window_size or length))))
    return min(users, _states(runner) or users)


def _states(runner: Any) -> int:
    """How many requests have a state at once, where layers have one of each request (Mamba); else zero."""
    if runner.mambaish_config is None:
        return 0
    return int(runner.server_args.max_mamba_cache_size) // int(runner._calculate_mamba_ratio())


def _share_of(runner: Any, config: Any, length: int, cache: int) -> int:
    """The part of the cache that one request of so many tokens takes, in bytes."""
    whole = _paged(runner, length)
    part = whole / _tokens(config)
    windows = config.swa_max_total_num_tokens
    if windows and config.full_max_total_num_tokens:
        part = max(part, _paged(runner, min(length, int(runner.sliding_window_size or length))) / windows)
    states = _states(runner)
    return int(cache * (max(part, 1 / states) if states else part))


def _lengths(longest: int) -> list[int]:
    return sorted({*(it for it in LENGTHS if it < longest), longest})


class _Parent:
    """The process that started the engine's: a server's, or the user's script."""

    def __init__(self, recording: Recording, program: Program, servers: Servers) -> None:
        self._recording, self._program, self._servers = recording, program, servers
        self._ends = False

    def has_served(self, module: Any, real: Function) -> Function:
        @guarded
        def go_on() -> None:
            tokens = None
            if self._servers.are_awaited:
                from plimsoll_agent.engines import long_pass

                tokens = long_pass.ask(module._global_state.tokenizer_manager)
            if not self._ends:
                self._servers.are_ready(tokens)

        def _wait_and_warmup(*args: Any, **kwargs: Any) -> Any:
            result = real(*args, **kwargs)
            if not self._ends:
                go_on()
            return result

        return _wait_and_warmup

    def ends_all(self, real: Function) -> Function:
        """Gives the engine's processes the time to write what they used: SGLang kills them at once. It kills itself, too, where something failed."""

        @guarded
        def ask(parent_pid: int | None, include_parent: bool) -> None:
            if include_parent and parent_pid == os.getpid() and not self._ends:
                self._program.failed(RuntimeError("SGLang ended itself; the script's output above has the reason"))
            self._ends = True
            multiprocessing = sys.modules.get("multiprocessing")
            children = multiprocessing.active_children() if multiprocessing is not None else []
            for child in children:
                child.terminate()
            wait_for(children)

        def kill_process_tree(parent_pid: Any, include_parent: bool = True, *args: Any, **kwargs: Any) -> Any:
            ask(parent_pid, include_parent)
            return real(parent_pid, include_parent, *args, **kwargs)

        return kill_process_tree
