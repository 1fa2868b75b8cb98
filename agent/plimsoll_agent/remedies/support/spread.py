"""One rank of several that run the same script, each on its share of every batch.

Outside of the calls of a model everything is the same in every process: the batch, the loss, what a script does
with it. At a call each process runs its own samples, and what comes out is put together again: outputs are gathered,
a loss that the model returns is added up with the weights that `split` found by trying. So any loss has the value and
the gradients that it has in one process.

Gradients of what is the same everywhere are whole everywhere. Inside a call each process has those of its share, times
the number of processes, so that their average over the processes is the sum that one process would have had: averages
are what DDP and FSDP make.

Two random numbers for the same sample are not drawn: dropout has its own in each process. What is drawn outside of a
model is the same everywhere, and that the batches are is looked at now and then.

A remedy that spreads gives `Spread` the parameters of an optimizer when the script makes it, and may put others in
their place.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import random
import sys
import weakref
import zlib
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.ranks import imagined as ranks
from plimsoll_agent.remedies.support import split
from plimsoll_agent.remedies.support.rerun import without_cache
from plimsoll_agent.remedies.support.ways import KEPT_BYTES, is_exact, way_of
from plimsoll_agent.run import nested
from plimsoll_agent.run.refusal import CannotApply, unsuited
from plimsoll_agent.values import phantom

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plimsoll_agent.kinds import Arguments, Function, Module, Named, Note, Optimizer, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks

BUCKET = 25 << 20
"""Gradients of so many bytes are sent together."""
_LAUNCHERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def spread(torch: Torch, remedy: str, parameters: Named, hooks: Hooks, note: Note) -> Spread | None:
    """The `Spread` of this process; None if it is no rank: a helper that the script started."""
    place = _place(parameters["gpus"])
    return Spread(torch, remedy, place, hooks, note) if place is not None else None


def _place(world: int) -> tuple[int, int, str] | None:
    """(rank, world, address); None where nothing says which rank this is.

    A script must not take itself for a launcher's: what says so is taken away. Its device is the only one that it sees.
    """
    if phantom.is_here():
        if "RANK" in os.environ:
            raise CannotApply("plimsoll: a plan for %d devices needs a script of one process; leave the launcher out" % world)
        os.environ[ranks.WORLD] = str(world)
        return ranks.chosen(world), world, "tcp://127.0.0.1:29500"
    given = {name: os.environ.pop(name) for name in _LAUNCHERS if name in os.environ}
    if given.get("WORLD_SIZE") != str(world) or "RANK" not in given:
        return None
    local = int(given["LOCAL_RANK"])
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = [it for it in (visible or "").split(",") if it]
    if visible is None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(local)
    elif not devices:
        pass  # GPUs are hidden, and stay hidden.
    elif local < len(devices):
        os.environ["CUDA_VISIBLE_DEVICES"] = devices[local]
    else:
        raise CannotApply("plimsoll: the plan needs %d devices, and CUDA_VISIBLE_DEVICES has %d" % (world, len(devices)))
    return int(given["RANK"]), world, "tcp://%s:%s" % (given["MASTER_ADDR"], given["MASTER_PORT"])


class Spread:
    """What this process has to do with the others."""

    def __init__(self, torch: Torch, remedy: str, place: tuple[int, int, str], hooks: Hooks, note: Note) -> None:
        self.torch, self.remedy, self.note = torch, remedy, note
        self.rank, self.world, self._address = place
        self._hooks = hooks
        hooks.on_shares = True
        self._were_trained: weakref.WeakSet[Module]
        self._ways: weakref.WeakKeyDictionary[Module, Any]
        self._ways, self._were_trained = weakref.WeakKeyDictionary(), weakref.WeakSet()
        self._spread: weakref.WeakKeyDictionary[Module, bool] = weakref.WeakKeyDictionary()
        self._mine: set[int] = set()
        self._instead: dict[int, Tensor] = {}
        self._averaged: list[Tensor] = []
        self._fresh: set[int] = set()
        self._n_calls = 0
        self._share, self._whole_of, self._together, self._added = _functions(torch, self)
        _same_random_numbers(torch, self._address)
        hooks.around_call(self._around)
        hooks.around_backward(self._around_backward)
        self._wrap_grad()
        self._wrap_save()

    def before_optimizers(self, prepare: Callable[[list[Module]], Any]) -> None:
        """`prepare(roots)` is called with the modules whose parameters an optimizer is made for, before it is; it
        answers what stands in the place of a parameter, by its `id`, and which are to be averaged by us."""
        optimizer_class = self.torch.optim.Optimizer
        make = optimizer_class.__init__

        def __init__(optimizer: Optimizer, params: Any, defaults: Named) -> None:
            groups = [self._group(it) for it in params]
            given = [_bare(p) for it in groups for p in (it["params"] if isinstance(it, dict) else [it])]
            fresh = [p for p in given if id(p) not in self._mine]
            if fresh:
                self.start()
                instead, averaged = prepare(roots_of(self.torch, fresh))
                self._take(fresh, instead, averaged)
                groups = [self._group(it) for it in groups]
            del fresh, given  # Whole parameters, without other references.
            make(optimizer, groups, defaults)

        patch.put(optimizer_class, "__init__", __init__)

    def _group(self, it: Any) -> Any:
        if isinstance(it, dict):
            params = [it["params"]] if isinstance(it["params"], self.torch.Tensor) else it["params"]
            return dict(it, params=[self._group(p) for p in params])
        return (it[0], self.current(it[1])) if isinstance(it, tuple) else self.current(it)

    def start(self) -> None:
        """Meets the others."""
        dist = self.torch.distributed
        if not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if self.torch.cuda.is_available() else "gloo"
            dist.init_process_group(backend, init_method=self._address, rank=self.rank, world_size=self.world)
            # Registered after what takes tensors apart, so it comes before.
            atexit.register(self._leave)

    def _leave(self) -> None:
        """A group that Python's end takes apart ends the process with a signal instead of its code."""
        dist = self.torch.distributed
        # With an error the others may be in the middle of something, which NCCL would wait for.
        has_failed = hasattr(sys, "last_value") and self.torch.cuda.is_initialized()
        if dist.is_initialized() and not has_failed:
            dist.destroy_process_group()

    def same_from_the_start(self, module: Module) -> None:
        """Weights that were drawn from numbers of a process's own become those of the first one."""
        with self.torch.no_grad():
            for it in [*module.parameters(), *module.buffers()]:
                sent = it.detach().contiguous()
                self.torch.distributed.broadcast(sent, 0)
                if sent.data_ptr() != it.data_ptr():
                    it.copy_(sent)

    def current(self, parameter: Tensor) -> Any:
        """What stands in the place of a parameter that the script may have put into a list before it was spread."""
        reference, instead = self._instead.get(id(parameter), (None, parameter))
        return instead if reference is None or reference() is parameter else parameter

    def _take(self, fresh: Any, instead: Any, averaged: Any) -> None:
        for parameter in fresh:
            replaced = instead.get(id(parameter), parameter)
            self._mine.add(id(replaced))
            if replaced is not parameter:
                self._instead[id(parameter)] = (weakref.ref(parameter), replaced)
        for parameter in averaged:
            self._averaged.append(parameter)
            parameter.register_post_accumulate_grad_hook(lambda it: self._fresh.add(id(it)))

    def _is_spread(self, module: Module) -> bool:
        if not self._spread.get(module):
            self._spread[module] = any(id(p) in self._mine for p in module.parameters())
        return self._spread[module]

    # --- Calls of a model --------------------------------------------------------------------------------

    def _around(self, module: Module, call: Function, args: Arguments, kwargs: Named) -> Any:
        torch = self.torch
        if not self._hooks.is_training(module) or not self._is_spread(module):
            return call(*args, **kwargs)
        whole = split.batch_size(torch, args, kwargs)
        if whole is None or whole < self.world:
            return call(*args, **kwargs)  # The same everywhere, and so are its gradients.
        if module.training and module not in self._were_trained:
            self._were_trained.add(module)
            self._say(module)
        # Without `no_grad`: then the script looks at what comes out, all of it.
        may_be_evaluation = not module.training and module in self._were_trained
        with without_cache(module, kwargs):
            known, kind = self._ways.setdefault(module, {}), split.kind_of(torch, args, kwargs, whole)
            if kind not in known:
                try:
                    known[kind] = way_of(torch, self.remedy, module, call, args, kwargs, whole)
                except Exception:
                    if not may_be_evaluation:
                        raise
                    known[kind] = None  # Not a batch: the same everywhere.
                else:
                    exact = is_exact(torch, module)
                    self._hooks.recording.write("split", samples=whole, loss=known[kind].has_loss, exact=exact)
            way = known[kind]
            if way is None:
                return call(*args, **kwargs)
            self._n_calls += 1
            if self._n_calls & (self._n_calls - 1) == 0:
                self._compare(args, kwargs)
            start, end = bounds(whole, self.world, self.rank)
            part_args, part_kwargs = self._part((args, dict(kwargs)), whole)
            self._hooks.least_share = whole // self.world
            try:
                with self._own_random_numbers():
                    output = call(*part_args, **part_kwargs)
            finally:
                self._hooks.least_share = None
            if not way.has_loss:
                return nested.rebuilt(torch, output, lambda it: self._gathered(it, whole))
            return self._with_whole_loss(output, way.weights(kwargs, whole, start, end), whole, may_be_evaluation)

    def _part(self, value: Any, whole: int) -> Any:
        def cut(tensor: Tensor) -> Any:
            is_batched = tensor.dim() >= 1 and tensor.size(0) == whole
            if tensor.requires_grad:
                return self._share(tensor) if is_batched else self._whole_of(tensor)
            start, end = bounds(whole, self.world, self.rank)
            return tensor[start:end] if is_batched else tensor

        return nested.rebuilt(self.torch, value, cut)

    def _gathered(self, tensor: Tensor, whole: int) -> Any:
        start, end = bounds(whole, self.world, self.rank)
        if tensor.dim() == 0 or tensor.size(0) != end - start:
            raise unsuited(
                self.remedy,
                "this model: an output of shape %s does not have one entry for each of %d samples"
                % (tuple(tensor.shape), end - start)
            )
        return self._together(tensor, whole)

    def _with_whole_loss(self, output: Any, weight: Tensor, whole: int, keeps_all: bool) -> Any:
        torch = self.torch
        key, loss = split.loss_in(torch, output)
        total = self._added(loss * weight)
        if key is None:
            return total
        start, end = bounds(whole, self.world, self.rank)
        large = sum(t.numel() * t.element_size() for t in nested.tensors_in(torch, output)) * self.world > KEPT_BYTES

        def whole_of(tensor: Tensor) -> Any:
            is_batched = tensor.dim() and tensor.size(0) == end - start
            return self._together(tensor.detach(), whole) if is_batched and (keeps_all or not large) else None

        if isinstance(output, dict):
            result = {k: total if k == key else nested.rebuilt(torch, v, whole_of) for k, v in output.items()}
            result = {k: v for k, v in result.items() if v is not None}
            return result if type(output) is dict else type(output)(result)
        if nested.is_record(output):
            fields = nested.fields_of(output).items()
            return nested.with_fields(output, {k: total if k == key else nested.rebuilt(torch, v, whole_of) for k, v in fields})
        return type(output)(total if i == key else nested.rebuilt(torch, v, whole_of) for i, v in enumerate(output))

    @contextlib.contextmanager
    def _own_random_numbers(self) -> Iterator[None]:
        torch = self.torch
        devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(torch.initial_seed() + 1 + self._n_calls * self.world + self.rank)
            yield

    def _compare(self, args: Arguments, kwargs: Named) -> None:
        """That every process has the same batch."""
        torch = self.torch
        tensors = [t.detach() for t in nested.tensors_in(torch, (args, kwargs)) if t.numel()]
        if not tensors:
            return
        sums = torch.stack([t.double().nan_to_num().sum() for t in tensors if not t.is_complex()])
        both = torch.cat([sums, -sums])
        torch.distributed.all_reduce(both, torch.distributed.ReduceOp.MAX)
        most, least = both.chunk(2)
        if (most + least).abs().max().item() != 0.0:
            raise unsuited(
                self.remedy,
                "this script: its ranks have different batches, so the script draws random numbers without a "
                "seed; seed them (torch.manual_seed, random.seed, numpy.random.default_rng(0))"
            )

    def _say(self, module: Module) -> None:
        modules = list(module.modules())
        if any(isinstance(it, self.torch.nn.modules.batchnorm._NormBase) and it.training for it in modules):
            self.note(
                "%s-batch-norm" % self.remedy,
                "the model has batch-norm, which normalizes the share of each device by itself: its statistics and the "
                "results are those of the smaller batch",
            )
        if any(isinstance(it, self.torch.nn.modules.dropout._DropoutNd) and it.p > 0 for it in modules):
            self.note("%s-dropout" % self.remedy, "the model has dropout, which draws different random numbers on each device")

    # --- Gradients ---------------------------------------------------------------------------------------

    def _around_backward(self, run: Function, tensors: Any, grad_tensors: Any) -> Any:
        result = run(tensors, grad_tensors)
        if self._averaged:
            self._average()
        return result

    def _average(self) -> None:
        """What a backward pass has added to, in any process, is averaged over them."""
        torch, fresh = self.torch, self._fresh
        device = self._averaged[0].device
        flags = torch.tensor([id(it) in fresh for it in self._averaged], dtype=torch.int32, device=device)
        torch.distributed.all_reduce(flags, torch.distributed.ReduceOp.MAX)
        fresh.clear()
        bucket: list[Tensor]
        bucket, size = [], 0
        for parameter, is_fresh in zip(self._averaged, flags.tolist()):
            if not is_fresh:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradient = parameter.grad
            kind = bucket[0].dtype if bucket else gradient.dtype
            if bucket and (gradient.dtype != kind or size >= BUCKET):
                self._average_of(bucket)
                bucket, size = [], 0
            bucket.append(gradient)
            size += gradient.numel() * gradient.element_size()
        if bucket:
            self._average_of(bucket)

    def _average_of(self, gradients: Any) -> None:
        torch = self.torch
        if len(gradients) == 1 and gradients[0].is_contiguous():
            torch.distributed.all_reduce(gradients[0].div_(self.world))
            return
        flat = torch.cat([it.reshape(-1) for it in gradients]).div_(self.world)
        torch.distributed.all_reduce(flat)
        for gradient, part in zip(gradients, flat.split([it.numel() for it in gradients])):
            gradient.copy_(part.view_as(gradient))

    def _wrap_grad(self) -> None:
        autograd = self.torch.autograd
        grad = autograd.grad

        def wrapped(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            asked = [inputs] if isinstance(inputs, self.torch.Tensor) else list(inputs)
            if any(id(it) in self._mine for it in asked):
                raise unsuited(
                    self.remedy,
                    "this script: it calls torch.autograd.grad for weights, and would get the gradients of one rank's share of "
                    "the batch"
                )
            return grad(outputs, asked, *args, **kwargs)

        patch.put(autograd, "grad", wrapped)

    # --- What a script saves -----------------------------------------------------------------------------

    def _wrap_save(self) -> None:
        """One file, written by the first process, with whole tensors in it."""
        torch = self.torch
        save = torch.save

        def wrapped(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            is_on_disk = isinstance(f, (str, os.PathLike)) or isinstance(getattr(f, "name", None), str)
            if not is_on_disk:  # A pickle of a tensor, on its way to another process.
                return save(obj, f, *args, **kwargs)
            obj = nested.rebuilt(torch, obj, whole_tensor)
            return save(obj, f, *args, **kwargs) if self.rank == 0 else None

        patch.put(torch, "save", wrapped)


def whole_tensor(tensor: Tensor) -> Any:
    """Of a tensor that is spread over the processes, all of it."""
    return tensor.full_tensor().cpu() if hasattr(tensor, "full_tensor") else tensor


def bounds(whole: int, world: int, rank: int) -> tuple[int, int]:
    """The samples of `rank`: shares differ by one at most, and the first ones are the larger."""
    size, more = divmod(whole, world)
    start = rank * size + min(rank, more)
    return start, start + size + (rank < more)


def roots_of(torch: Torch, parameters: list[Tensor]) -> list[Module]:
    """The smallest modules that hold these parameters and whose calls use them."""
    wanted = {id(it) for it in parameters}
    module_class = torch.nn.Module
    modules = [it for it in gc.get_objects() if issubclass(type(it), module_class) and "_modules" in it.__dict__]
    inner = {id(child) for it in modules for child in it._modules.values() if child is not None}

    def holds(module: Module) -> bool:
        return any(id(p) in wanted for p in module.parameters())

    containers = (torch.nn.ModuleList, torch.nn.ModuleDict)
    roots: list[Module]
    todo, roots = [it for it in modules if id(it) not in inner and holds(it)], []
    while todo:
        module = todo.pop(0)
        own = any(id(p) in wanted for p in module._parameters.values())
        children = [it for it in module.children() if holds(it)]
        if not own and (type(module) in containers or len(children) == 1 and type(children[0]) not in containers):
            todo = children + todo
        elif not any(it is module for it in roots):
            roots.append(module)
    return roots


def _bare(parameter: Tensor) -> Any:
    """Without its name."""
    return parameter[1] if isinstance(parameter, tuple) else parameter


def _same_random_numbers(torch: Torch, address: str) -> None:
    """What is not seeded begins with other numbers in each process: here with the same, other ones in the next run."""
    if phantom.is_here():
        return
    seed = zlib.crc32(address.encode())  # The port is another one in each run.
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def _functions(torch: Torch, spread: Spread) -> tuple[Function, Function, Function, Function]:
    """`share`, `whole_of`, `together` and `added`: between what is the same everywhere and what is a process's own.
    Each is the backward of another, so that gradients of gradients are right too."""
    dist = torch.distributed
    world, rank = spread.world, spread.rank

    def gather(tensor: Tensor, whole: int) -> Any:
        sizes = [end - start for start, end in (bounds(whole, world, it) for it in range(world))]
        longest = sizes[0]
        if tensor.size(0) < longest:
            rest = tensor.new_zeros((longest - tensor.size(0), *tensor.shape[1:]))
            tensor = torch.cat([tensor, rest])
        all = tensor.new_empty((world * longest, *tensor.shape[1:]))
        dist.all_gather_into_tensor(all, tensor.contiguous())
        if sizes[-1] == longest:
            return all
        return torch.cat([it[:size] for it, size in zip(all.chunk(world), sizes)])

    def own(tensor: Tensor) -> Any:
        start, end = bounds(tensor.size(0), world, rank)
        return tensor[start:end]

    class Share(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, tensor: Tensor) -> Any:
            ctx.whole = tensor.size(0)
            return own(tensor).clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return Together.apply(grad, ctx.whole) / world

    class Together(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, tensor: Tensor, whole: int) -> Any:
            return gather(tensor, whole)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> tuple[Any, Any]:
            return Share.apply(grad) * world, None

    class WholeOf(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, tensor: Tensor) -> Any:
            return tensor.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return Added.apply(grad) / world

    class Added(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, tensor: Tensor) -> Any:
            total = tensor.clone()
            dist.all_reduce(total)
            return total

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return WholeOf.apply(grad) * world

    return Share.apply, WholeOf.apply, Together.apply, Added.apply
