"""One rank of a job whose other ranks are imagined.

A launcher that would start many processes (`torchrun`, `accelerate launch`, `deepspeed`, `mp.spawn`) starts one of
them, in the environment that it would have had among the others; and in that one the rendezvous is
answered without them. Everything else is PyTorch's: its `ProcessGroupNCCL` with its streams and its
bookkeeping runs over the phantom's NCCL. What crosses the host (gloo groups, the store) is answered as
if every other rank sent what this one sends.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import dataclasses
import functools
import json
import os
import sys
import time
import types
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.ranks import consolidation, meshes
from plimsoll_agent.ranks.imagined_store import store_class
from plimsoll_agent.ranks.object_collectives import Objects
from plimsoll_agent.run import frames
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.values.phantom import finding_all, function, tell_group, tell_next_group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plimsoll_agent.kinds import Arguments, Function, Library, Named, Tensor, Torch
    from plimsoll_agent.run.recording import Recording
    from plimsoll_agent.values.phantom import Phantom

WORLD = "PLIMSOLL_WORLD"
"""How many ranks are imagined, this one included: set by the command line or by us at a launcher."""
RANK = "PLIMSOLL_RANK"
"""Which one runs; the first if it is not set."""
ALL = "PLIMSOLL_ALL_RANKS"
"""Set if every rank shall be a process."""
DEVICES = "PLIMSOLL_DEVICES"
"""How many devices the phantom has, if a launcher asks for more than the command line."""

_imagine: Any = None
"""Makes this process the one rank, if it is not yet: for one that was forked, or that goes on as a rank."""

_C10D = "torch.distributed.distributed_c10d"
_LAUNCHER = "torch.distributed.launcher.api"
_DEEPSPEED = "deepspeed.launcher"
_CHECKPOINT = "torch.distributed.checkpoint."
_RPC = "torch.distributed.rpc"


def install(torch: Torch, recording: Recording, phantom: Phantom) -> None:
    """Takes its places: in the launchers, and in `torch.distributed` if this process is the one rank."""
    # `torchrun` and `accelerate launch` meet in one class, in a module that nothing else imports.
    after_import(_LAUNCHER, lambda module: _wrap_launcher(module, recording))
    after_import(_DEEPSPEED, lambda _: _be_of_deepspeed(recording))
    after_import(consolidation.MODULE, consolidation.wrap)
    after_import(meshes.MODULE, meshes.wrap)
    _wrap_spawn(torch)
    if not torch.distributed.is_available():
        return
    objects = Objects(sys.modules[_C10D], lambda: bool(os.environ.get(WORLD)), recording)
    for name, by in objects.replacements().items():
        _replace(torch, name, by)
    _wrap_destroy(torch, phantom)
    _tell_groups(torch)
    _wrap_reducer(torch)
    _wrap_sync_batch_norm()
    global _imagine
    _imagine = functools.lru_cache(maxsize=None)(_Imagined(torch, recording).install)
    if os.environ.get(WORLD):
        _imagine()


def _replace(torch: Torch, name: str, by: Any) -> None:
    """In the module that defines it and in the one that people import it from."""
    c10d = sys.modules[_C10D]
    before = getattr(c10d, name)
    patch.put(c10d, name, by)
    if getattr(torch.distributed, name, None) is before:
        patch.put(torch.distributed, name, by)


def has_company(torch: Torch) -> bool:
    """Whether other processes train together with this one: ranks that are not imagined."""
    dist = torch.distributed
    is_one_of_several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return is_one_of_several and not os.environ.get(WORLD)


def is_first() -> bool:
    """Whether this process is the first rank of its machine, and the others are imagined."""
    return bool(os.environ.get(WORLD)) and os.environ.get("LOCAL_RANK") == "0"


WATCHED_STEPS = 20
"""After which what a step leaves to the watchdog has been seen often enough."""


def wait_for_watchdog(step: int) -> None:
    """PyTorch's thread looks every 100 ms for collectives that are done, and lets go of what they hold.

    That it has looked after a step, and not in the middle of the next one, makes every run the same.
    """
    unseen = function("plimsoll_phantom_unseen")
    if unseen is None or step > WATCHED_STEPS:
        return
    unseen.argtypes, unseen.restype = [], ctypes.c_size_t
    end = time.monotonic() + 1.0
    looked = False
    while unseen() and time.monotonic() < end:
        looked = True
        time.sleep(0.005)
    if looked:
        time.sleep(0.005)  # It has our answer, and needs a moment to act on it.


def _wrap_reducer(torch: Torch) -> None:
    """DDP's reducer waits for futures, not for works, so its buckets are held until the watchdog has looked."""
    make = getattr(torch.distributed, "Reducer", None)
    holds = function("plimsoll_phantom_watchdog_holds")
    if make is None or holds is None:
        return

    @functools.wraps(make, updated=())
    def Reducer(*args: Any, **kwargs: Any) -> Any:
        holds()
        return make(*args, **kwargs)

    patch.put(torch.distributed, "Reducer", Reducer)


def _wrap_sync_batch_norm() -> None:
    """It selects the statistics of ranks that have an input, by a mask; this rank has one, and so have the imagined ones."""
    batch_norm = sys.modules["torch.nn.modules._functions"].SyncBatchNorm
    real = batch_norm.forward

    def forward(ctx: Any, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        with finding_all() if input.numel() else contextlib.nullcontext():
            return real(ctx, input, *args, **kwargs)

    patch.put(batch_norm, "forward", staticmethod(forward))


def _wrap_destroy(torch: Torch, phantom: Phantom) -> None:
    """Ending a group waits for PyTorch's watchdog thread, which the phantom lets wait for steps."""
    destroy = sys.modules[_C10D].destroy_process_group

    @functools.wraps(destroy)
    def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
        phantom.finish()
        return destroy(*args, **kwargs)

    _replace(torch, "destroy_process_group", destroy_process_group)


def _near(ranks: list[int]) -> list[int]:
    """Which of these ranks of the job are on the machine of this one, by their numbers among them."""
    of_a_machine, own = os.environ.get("LOCAL_WORLD_SIZE", ""), os.environ.get("RANK", "")
    if not (of_a_machine.isdigit() and own.isdigit() and int(of_a_machine)):
        return list(range(len(ranks)))
    return [at for at, it in enumerate(ranks) if it // int(of_a_machine) == int(own) // int(of_a_machine)]


def _tell_groups(torch: Torch) -> None:
    """The phantom's NCCL cannot ask who is in a part of a group. `new_group` names a part by its ranks
    in Python, and a mesh (since PyTorch 2.10) in C++."""
    color = sys.modules[_C10D]._process_group_color

    @functools.wraps(color)
    def _process_group_color(ranks: Any) -> Any:
        result = color(ranks)
        tell_group(result, len(list(ranks)), _near(list(ranks)))
        return result

    _replace(torch, "_process_group_color", _process_group_color)
    group = torch._C._distributed_c10d.ProcessGroup
    split = getattr(group, "split_group", None)
    if split is None:
        return

    def split_group(self: Any, new_ranks: Any, *args: Any, **kwargs: Any) -> Any:
        ranks = list(new_ranks)
        tell_next_group(len(ranks), _near(ranks))
        try:
            return split(self, new_ranks, *args, **kwargs)
        finally:
            tell_next_group(0, [])

    patch.put(group, "split_group", split_group)


def chosen(world: int) -> Any:
    """The number of the rank that runs, of `world`."""
    text = os.environ.get(RANK, "")
    return min(int(text), world - 1) if text.isdigit() else 0


def environment(world: int, local_world: Any, rank: int) -> Named:
    """What `torchrun` gives a rank, of `world` on machines of `local_world` devices."""
    n_machines = -(-world // local_world)
    return {
        "RANK": rank,
        "LOCAL_RANK": rank % local_world,
        "GROUP_RANK": rank // local_world,
        "ROLE_RANK": rank,
        "ROLE_NAME": "default",
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": min(world, local_world),
        "GROUP_WORLD_SIZE": n_machines,
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_RUN_ID": "plimsoll",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1,
        WORLD: world,
        RANK: rank,
        DEVICES: max(min(world, local_world), _devices()),
    }


def need_devices(count: int) -> None:
    """The phantom has so many, before it is asked for the first time."""
    os.environ[DEVICES] = str(count)


def _devices() -> int:
    text = os.environ.get(DEVICES, "")
    return int(text) if text.isdigit() else 1


# --- Launchers -------------------------------------------------------------------------------------


def _wrap_launcher(module: Library, recording: Recording) -> None:
    launch = module.elastic_launch.__call__

    def __call__(self: Any, *args: Any) -> Any:
        entry, rank = self._entrypoint, take_rank_of(self._config)
        if rank is None:
            return launch(self, *args)
        if not isinstance(entry, str):
            _imagine()
            return {rank: entry(*args)}
        _go_on_as(recording, [entry, *args])

    patch.put(module.elastic_launch, "__call__", __call__)


def take_rank_of(config: Any) -> int | None:
    """Has this process be the rank that runs, of those that a launch of this configuration starts; none if all of them run."""
    local_world = config.nproc_per_node
    given = os.environ.get(WORLD, "")
    world = int(given) if given.isdigit() else config.min_nodes * local_world
    if os.environ.get(ALL) or world < 2:
        need_devices(max(local_world, _devices()))
        return None
    return _take_rank(world, local_world)


def _be_of_deepspeed(recording: Recording) -> None:
    """`deepspeed train.py` starts `python -m deepspeed.launcher.launch`, which imports this package and starts a process for each rank.
    Elsewhere the package is imported for other things."""
    words = sys.orig_argv
    if ("-m", _DEEPSPEED + ".launch") not in zip(words, words[1:]):
        return
    from deepspeed.launcher import launch  # type: ignore[import-not-found]

    given = launch.parse_args()
    machines = list(json.loads(base64.urlsafe_b64decode(given.world_info)).values())
    world, local_world = sum(map(len, machines)), len(machines[given.node_rank])
    if os.environ.get(ALL) or world < 2:
        need_devices(max(local_world, _devices()))
        del sys.modules[launch.__name__]  # It is about to run as the program, and Python warns where it is there before.
        return
    rank = _take_rank(world, local_world)
    start = [] if given.no_python else [sys.executable, "-u", *(["-m"] if given.module else [])]
    own = [] if given.no_local_rank else ["--local_rank=%d" % (rank % local_world)]
    _go_on_as(recording, [*start, given.training_script, *own, *given.training_script_args])


def _take_rank(world: int, local_world: int) -> int:
    """Has this process be the rank that runs, of `world`."""
    rank: int = chosen(world)
    if os.environ.get(RANK, "0") != str(rank):
        sys.exit("there is no --rank %s among the %d ranks of this launch" % (os.environ[RANK], world))
    os.environ.update({name: str(value) for name, value in environment(world, local_world, rank).items()})
    return rank


def _go_on_as(recording: Recording, command: list[str]) -> None:
    """The launcher's process becomes the rank: nothing is left to supervise."""
    recording.withdraw()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(command[0], command)


def _wrap_spawn(torch: Torch) -> None:
    """`mp.spawn` of one process for each device is a job of ranks; any other number may be anything."""
    spawn: Any = sys.modules["torch.multiprocessing.spawn"]  # The attribute of that name is a function.
    start = spawn.start_processes

    def start_processes(fn: Function, args: Arguments = (), nprocs: int = 1, *more: Any, **options: Any) -> Any:
        if nprocs < 2 or os.environ.get(ALL) or nprocs != torch.cuda.device_count():
            return start(fn, args, nprocs, *more, **options)
        mine = {WORLD: str(nprocs), RANK: str(chosen(nprocs)), DEVICES: str(max(nprocs, _devices()))}
        before = {name: os.environ.get(name) for name in mine}
        os.environ.update(mine)
        try:
            return start(_Rank(fn, chosen(nprocs)), args, 1, *more, **options)
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    patch.put(spawn, "start_processes", start_processes)
    patch.put(torch.multiprocessing, "start_processes", start_processes)


class _Rank:
    """A spawned function that gets `rank` as the number of its process."""

    def __init__(self, function: Function, rank: int) -> None:
        self._function, self._rank = function, rank

    def __call__(self, _index: Any, *args: Any) -> Any:
        _imagine()
        return self._function(self._rank, *args)


# --- The one rank ------------------------------------------------------------------------------------


class _Imagined:
    """What `torch.distributed` is given instead of other ranks."""

    def __init__(self, torch: Torch, recording: Recording) -> None:
        self._torch = torch
        self._dist = torch.distributed
        self._c10d: Any = sys.modules[_C10D]
        self._recording = recording
        # C++ holds a store without holding its Python half.
        self._stores: list[Any] = []

    def install(self) -> None:
        # These threads only look for other ranks that hang, through the store and so through Python.
        for name in ("ENABLE_MONITORING", "DUMP_ON_TIMEOUT", "PROPAGATE_ERROR"):
            os.environ.setdefault("TORCH_NCCL_" + name, "0")
        self._store_class = store_class(self._dist)
        self._replace("rendezvous", self._rendezvous)
        patch.put(self._dist, "TCPStore", self._store_of_the_script())
        self._replace("ProcessGroupGloo", self._gloo(self._c10d.ProcessGroupGloo))
        self._replace("monitored_barrier", lambda *_, **__: None)
        self._wrap_init(self._c10d.init_process_group)
        after_import(_RPC, self._refuse_calls)
        after_import(_CHECKPOINT + "utils", self._coordinate_checkpoints)
        after_import(_CHECKPOINT + "default_planner", self._believe_checkpoints)

    def _replace(self, name: str, by: Any) -> None:
        _replace(self._torch, name, by)

    def _wrap_init(self, init: Any) -> None:
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            try:
                result = init(*args, **kwargs)
            except BaseException as error:
                frames.hide_ours(error)
                raise
            world, rank = self._c10d.get_world_size(), self._c10d.get_rank()
            if 1 < world:
                self._recording.note(
                    "imagined-ranks",
                    "plimsoll ran rank %d of %d and imagined the others, which are assumed to send what this rank sends "
                    "(--rank runs another one, --all-ranks runs every rank of this machine)" % (rank, world),
                )
            return result

        patch.put(self._c10d, "init_process_group", init_process_group)
        patch.put(self._dist, "init_process_group", init_process_group)

    def _refuse_calls(self, module: Library) -> None:
        """Functions that run in another process: what they compute there, an imagined one cannot."""

        def init_rpc(*_: Any, **__: Any) -> None:
            raise RuntimeError(
                "torch.distributed.rpc calls functions in other ranks, and plimsoll imagines these: "
                "run plimsoll predict --all-ranks, which starts every rank of this machine"
            )

        patch.put(module, "init_rpc", init_rpc)

    def _coordinate_checkpoints(self, module: Library) -> None:
        """One rank plans what each rank saves, and sends the plan: here the rank that runs."""
        dist, wrapper = self._dist, module._DistWrapper
        make = wrapper.__init__

        def __init__(it: Any, group: Any, use_dist: Any, coordinator_rank: Any) -> None:
            make(it, group, use_dist, dist.get_rank(group) if use_dist else coordinator_rank)

        patch.put(wrapper, "__init__", __init__)

    def _believe_checkpoints(self, module: Library) -> None:
        """Each imagined rank says that it saves what this one does: the same parts of every tensor, and no others."""
        patch.put(module, "_validate_global_plan", lambda *_: True)
        dist, real = self._dist, getattr(module, "dedup_save_plans", None)
        if real is None:
            return

        def dedup_save_plans(all_plans: Any, *args: Any, **kwargs: Any) -> Any:
            # What an imagined rank would save of the same parts is in no file, so this rank saves all that it has.
            if len(all_plans) != dist.get_world_size():
                return real(all_plans, *args, **kwargs)
            rank = dist.get_rank()
            return [it if at == rank else dataclasses.replace(it, items=[]) for at, it in enumerate(all_plans)]

        patch.put(module, "dedup_save_plans", dedup_save_plans)

    def _rendezvous(self, url: Any, rank: int = -1, world_size: Any = -1, **_options: Any) -> Iterator[Any]:
        """As PyTorch's handlers: the address decides nothing, rank and size come from it or from the environment."""
        from urllib.parse import parse_qsl, urlparse

        query = dict(parse_qsl(urlparse(url).query))

        def number(given: Any, name: str, variable: str) -> int:
            for text in (given if given is not None and given >= 0 else None, query.get(name), os.environ.get(variable)):
                if text is not None:
                    return int(text)
            raise ValueError("Error initializing torch.distributed using env:// rendezvous: environment variable "
                             "%s expected, but not set" % variable)

        rank, world_size = number(rank, "rank", "RANK"), number(world_size, "world_size", "WORLD_SIZE")
        if not 0 <= rank < world_size:
            raise ValueError("rank %d is not one of %d ranks" % (rank, world_size))
        yield self._new_store(), rank, world_size

    def _tell_who_meets(self, key: str) -> None:
        """The ranks of a group meet by an id that they leave in the store under the group's name, and two of them under their numbers,
        too: `.../NAME//cuda//0` and `.../NAME//cuda//0:3`. A communicator of them is made next."""
        *before, kind, numbers = ["", "", *key.split("//")]
        if kind != "cuda" or not any(before):
            return
        name, world = before[-1].rpartition("/")[2], self._c10d._world
        group = next((it for it, its_name in world.pg_names.items() if its_name == name), None)
        if group not in world.pg_group_ranks:
            tell_next_group(0, [])
            return
        by_number = {number: rank for rank, number in world.pg_group_ranks[group].items()}
        pair = [int(it) for it in numbers.split(":") if it.isdigit()]
        ranks = [by_number[it] for it in (pair if len(pair) == 2 else sorted(by_number))]
        tell_next_group(len(ranks), _near(ranks))

    def _new_store(self) -> Any:
        store = self._store_class(self._tell_who_meets)
        self._stores.append(store)
        return store

    def _store_of_the_script(self) -> type:
        """For scripts that make the store themselves; the real one waits for the others to connect."""
        real: Any
        imagined, real = self, self._dist.TCPStore

        class TCPStore(real):
            def __new__(cls, *_: Any, **__: Any) -> Any:
                return imagined._new_store()

        TCPStore.__qualname__ = real.__qualname__
        TCPStore.__module__ = real.__module__
        return TCPStore

    def _gloo(self, real: Any) -> type:
        """A group on the host. PyTorch's own fake one returns to each rank what it sent."""
        fake = sys.modules["torch._C._distributed_c10d"].FakeProcessGroup

        # It counts no collectives, which only other ranks would look at, and waits for nobody.
        patch.put(fake, "_set_sequence_number_for_group", lambda _: None)
        patch.put(fake, "_set_default_timeout", lambda _, timeout: None)
        if not hasattr(fake, "options"):
            # PyTorch 2.8 writes the group's name and ranks into them, for its log.
            patch.put(fake, "options", types.SimpleNamespace())

        class Check(type):
            def __instancecheck__(cls, it: Any) -> bool:
                return isinstance(it, (real, fake))

        class ProcessGroupGloo(metaclass=Check):
            def __new__(cls, _store: Any, rank: int, size: int, *_: Any, **__: Any) -> Any:
                if hasattr(fake, "_create_internal"):
                    return fake._create_internal(rank, size, fake.Options())
                return fake(rank, size)  # Before PyTorch 2.10.

        for name in ("_Options", "create_device", "create_default_device", "Options"):
            if hasattr(real, name):
                setattr(ProcessGroupGloo, name, getattr(real, name))
        return ProcessGroupGloo
