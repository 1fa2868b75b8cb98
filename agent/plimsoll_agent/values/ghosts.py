"""Weights on the host that need no memory and no time.

A model is usually built on the CPU and moved to the GPU later. A phantom never needs the values,
so once the weights would need too much host memory, large floating-point tensors there become ghosts:
they have shapes, dtypes and addresses (the phantom maps the same few pages behind all of them), and
operations that would only fill, convert or copy them do nothing. What crosses to the device crosses as it
would have, temporaries included. Small tensors, and whole numbers of any size, stay real.

A fill that would have drawn random numbers moves the host's generator as if it had: what the script draws next, a length or an order,
is what it draws after real weights.

It is a `TorchDispatchMode`, so it is below autograd and sees what every way of building a model comes to.
It goes when training begins, unless the optimizer has parameters on the host.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
import weakref
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run import below, host
from plimsoll_agent.run.guard import failed, guarded
from plimsoll_agent.values import draws
from plimsoll_agent.values.phantom import function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plimsoll_agent.kinds import Function, Module, Named, Operator, Optimizer, Tensor, Torch
    from plimsoll_agent.run.recording import Recording

LARGE = 1 << 20
"""Bytes of a tensor that may be a ghost: programs do not steer by longer ones."""
SHARE = 8
"""Weights may take one part in so many of the host's free memory before the others are ghosts."""
MOST_REAL = 4 << 30
OFFLOADED = 4
"""A large tensor that is pinned counts so often: what is offloaded has a weight, its gradient and two states of its optimizer on the host."""

_UNIFORM = {"uniform_", "uniform", "rand", "rand_like"}
_NORMAL = {"normal_", "normal", "randn", "randn_like", "normal_functional"}
_AT_ONCE = 16
"""Normal numbers are drawn so many at a time; what is done for the rest differs by type and version (`normal_fill` in DistributionTemplates.h)."""

# They change what a tensor is, not what is in it; and questions whose answers are not in the values.
_AS_IT_IS = {"set_", "resize_", "resize_as_", "_resize_output_", "is_pinned", "_local_scalar_dense", "record_stream"}


class Ghosts:
    """Decides when weights become ghosts, and when they need not any more."""

    def __init__(self, torch: Torch, recording: Recording, optimizers: Callable[[], list[Optimizer]], which: str) -> None:
        self._torch = torch
        self._recording = recording
        self._optimizers, self._which = optimizers, which
        self._real = 0
        self._limit = 0
        self._hook = None
        self._mode: Any = None
        self._is_away = False

    def install(self) -> None:
        """Does nothing without a phantom that can make ghosts."""
        take, gone = function("plimsoll_phantom_ghost"), function("plimsoll_phantom_ghost_gone")
        if take is None or gone is None or self._which == "off":
            return
        take.argtypes, take.restype = [ctypes.c_size_t], ctypes.c_void_p
        gone.argtypes, gone.restype = [ctypes.c_void_p], None
        drawn = function("plimsoll_phantom_drawn")
        if drawn is not None:
            drawn.argtypes, drawn.restype = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64], ctypes.c_int
        self._memory = take, gone, drawn
        if self._which == "stand-ins":
            StandIns(self._torch, drawn).install()
            return
        self._limit = min(MOST_REAL, (host.free_memory() or MOST_REAL * SHARE) // SHARE)
        self._wrap_load()
        self._wrap_mapped_files()
        self._wrap_executors()
        patch.replace(self._torch, "ctc_loss", self._wrap_ctc_loss)
        patch.replace(self._torch.Tensor, "pin_memory", self._wrap_pin_memory)
        if self._which == "on":
            self._begin("--ghost-weights is on")
            return
        hook = guarded(self._registered)
        self._hook = self._torch.nn.modules.module.register_module_parameter_registration_hook(hook)

    def _registered(self, _module: Module, _name: Any, parameter: Tensor) -> None:
        if self._mode is None and parameter is not None and parameter.device.type == "cpu":
            if self._torch.nn.parameter.is_lazy(parameter):
                return  # Its size is unknown.
            self._count(parameter.numel() * parameter.element_size())

    def _count(self, size: int) -> None:
        """So many more bytes of weights on the host."""
        self._real += size
        if self._limit < self._real:
            self._begin("the script made more than %.1f GiB of weights in this machine's memory, its share of what is free there" % (self._limit / 2**30))

    def _begin(self, why: str) -> None:
        if self._mode is not None or threading.current_thread() is not threading.main_thread():
            return
        if self._torch._C._len_torch_dispatch_stack():
            return  # Inside a dispatch mode of the program; the next parameter may come outside it.
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        self._mode = self._new_mode()
        self._mode.__enter__()
        self._recording.note(
            "ghost-weights",
            "%s: from there on, large tensors on the CPU are placeholders without values, which spares the memory of this machine "
            "(--ghost-weights=off turns this off)" % why,
        )

    def _new_mode(self) -> Any:
        below.entered(self._torch)
        return _mode_class(self._torch)(*self._memory)

    @guarded
    def leaves_for(self, module: Module) -> Any:
        """Called before a model is: while there is a mode, `linear` adds its bias out of place (`isTensorSubclassLike` in PyTorch), and
        takes other memory on the device. Who comes back after the call; None where there is no mode, or it is needed."""
        if self._mode is None or any(it.device.type == "cpu" for it in module.parameters()):
            return None
        return self._leaves()

    @guarded
    def _leaves(self) -> Any:
        """Ends the mode for a while. Who brings it back; None where there is none, or another one is above it."""
        mode = self._mode
        if mode is None or mode.is_over:
            return None
        if sys.modules["torch.utils._python_dispatch"]._get_current_dispatch_mode() is not mode:
            return None
        mode.__exit__(None, None, None)
        self._is_away = True
        return self._come_back

    @guarded
    def _come_back(self) -> None:
        self._is_away = False
        if not self._mode.is_over:
            self._mode.__enter__()

    @guarded
    def training_begins(self) -> None:
        """Called before each backward: without weights on the host there is nothing left to do."""
        mode = self._mode
        if mode is None or mode.is_over or self._has_weights_on_the_host():
            return
        dispatch = sys.modules["torch.utils._python_dispatch"]
        if dispatch._get_current_dispatch_mode() is mode:
            mode.is_over = True
            mode.__exit__(None, None, None)
        elif self._is_away:
            mode.is_over = True

    @guarded
    def _has_weights_on_the_host(self) -> bool:
        if self._mode.pins():
            return True  # DeepSpeed's optimizer has its parameters during its steps only.
        for optimizer in self._optimizers():
            for group in optimizer.param_groups:
                if any(it.device.type == "cpu" for it in group["params"]):
                    return True
        return False

    def _wrap_load(self) -> None:
        """A checkpoint as large as the weights is mapped, not read, where the file can be."""
        torch = self._torch
        load = torch.load

        def wrapped(f: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("mmap") is None and self._is_large_checkpoint(f):
                kwargs["mmap"] = True
            return load(f, *args, **kwargs)

        patch.put(torch, "load", wrapped)

    def _wrap_mapped_files(self) -> None:
        """Weights in a file that is mapped, as safetensors does it: read in pieces, by whichever thread."""
        storage = self._torch.UntypedStorage
        map_file = storage.from_file

        def from_file(filename: str, *args: Any, **kwargs: Any) -> Any:
            try:
                if self._mode is None:
                    self._count(os.path.getsize(filename))
            except Exception as error:
                failed("ghosts.from_file", error)
            return map_file(filename, *args, **kwargs)

        patch.put(storage, "from_file", staticmethod(from_file))

    def _wrap_executors(self) -> None:
        """A mode belongs to one thread; libraries load and convert weights in several."""
        submit: Function = ThreadPoolExecutor.submit

        def wrapped(executor: Any, fn: Function, /, *args: Any, **kwargs: Any) -> Any:
            return submit(executor, self._in_mode, fn, *args, **kwargs)

        patch.put(ThreadPoolExecutor, "submit", wrapped)

    def _wrap_ctc_loss(self, loss: Function) -> Function:
        """While there is a mode it takes lengths for tensors of its own device (`areAnyTensorSubclassLike` in PyTorch), and refuses those on the host."""

        def ctc_loss(*args: Any, **kwargs: Any) -> Any:
            comes_back = self._leaves()
            try:
                return loss(*args, **kwargs)
            finally:
                if comes_back is not None:
                    comes_back()

        return ctc_loss

    def _wrap_pin_memory(self, pin: Function) -> Function:
        """Weights and optimizer states that are offloaded: each optimizer step computes with all of them on the host."""

        def pin_memory(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            try:
                if self._mode is None and _is_large(tensor):
                    self._count(OFFLOADED * tensor.numel() * tensor.element_size())
            except Exception as error:
                failed("ghosts.pin_memory", error)
            return pin(tensor, *args, **kwargs)

        return pin_memory

    def _in_mode(self, fn: Function, /, *args: Any, **kwargs: Any) -> Any:
        mode = self._mode
        if mode is None or mode.is_over or self._torch._C._len_torch_dispatch_stack():
            return fn(*args, **kwargs)
        with self._new_mode():
            return fn(*args, **kwargs)

    @guarded
    def _is_large_checkpoint(self, f: Any) -> bool:
        if not isinstance(f, (str, os.PathLike)) or not os.path.isfile(f):
            return False
        is_large = self._mode is not None or max(self._limit, LARGE) < os.path.getsize(f)
        return is_large and zipfile.is_zipfile(f)


@functools.cache
def _mode_class(torch: Torch) -> type:
    from torch.utils._python_dispatch import TorchDispatchMode

    class GhostMode(TorchDispatchMode):
        """See the top of this file. Every operation of the thread comes by."""

        is_plimsolls = True

        def __init__(self, take: Function, gone: Any, drawn: Any) -> None:
            super().__init__()
            self.is_over = False
            self._operations = _Operations(torch, take, gone, drawn)
            self._kinds: dict[Any, str] = {}

        def pins(self) -> bool:
            """Whether large tensors were pinned: they are what is offloaded."""
            return self._operations.pins

        def __torch_dispatch__(self, func: Operator, types: Any, args: Any = (), kwargs: Named | None = None) -> Any:
            kwargs = kwargs or {}
            if self.is_over:
                return below.goes_on(torch, func, args, kwargs)
            kind = self._kinds.get(func)
            if kind is None:
                kind = self._kinds[func] = _kind(torch, func)
            if kind == "real":
                return below.goes_on(torch, func, args, kwargs)
            try:
                done, result = self._operations.done(kind, func, args, kwargs)
            except Exception as error:
                failed("ghosts.%s" % func, error)
                done = False
            return result if done else below.goes_on(torch, func, args, kwargs)

    return GhostMode


class StandIns:
    """Large random fills on the host that repeat a few numbers of the same distribution.

    A run with them is what runs with ghosts are checked by: weights have values, as they would have, and whether memory depends
    on them shows as well. To draw every number takes longer than all else in a short run. The generator moves as if they all
    had been drawn.
    """

    def __init__(self, torch: Torch, drawn: Any) -> None:
        self._torch = torch
        self._draws = _Draws(torch, drawn)
        self._pools: dict[Any, Any] = {}

    def install(self) -> None:
        """`torch.nn.init`, and so every layer, fills its weights by these methods."""
        tensor = self._torch.Tensor
        for name in ("normal_", "uniform_"):
            patch.replace(tensor, name, functools.partial(self._wrapped, name))

    def _wrapped(self, name: str, fill: Any) -> Function:
        def wrapped(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            try:
                if self._filled(name, fill, tensor, args, kwargs):
                    return tensor
            except Exception as error:
                failed("ghosts.%s" % name, error)
            return fill(tensor, *args, **kwargs)

        return wrapped

    def _filled(self, name: str, fill: Any, tensor: Tensor, args: Any, kwargs: Named) -> bool:
        torch = self._torch
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
        if not plain or not _is_large(tensor) or not tensor.is_contiguous() or tensor.is_complex():
            return False
        if kwargs.get("generator") is not None or tensor.requires_grad and torch.is_grad_enabled():
            return False
        if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
            return False
        key = name, tensor.dtype, args, tuple(sorted(kwargs.items()))
        pool = self._pools.get(key)
        if pool is None:
            own = torch.Generator().manual_seed(0)
            pool = self._pools[key] = fill(_on_host(torch, _POOL, tensor.dtype), *args, **dict(kwargs, generator=own))
        if not self._draws.move(name, tensor, None):
            return False
        repeat(tensor.detach().view(-1), pool)
        return True


def repeat(flat: Any, first: Any) -> None:
    """Fills `flat` with the numbers of `first`, again and again; both have one dimension, and `flat` is not shorter."""
    done = first.numel()
    flat[:done] = first
    while done < flat.numel():
        more = flat[done : 2 * done]
        more.copy_(flat[: more.numel()])
        done *= 2


_POOL = 1 << 16
"""Random numbers that a stand-in repeats."""


class _Draws:
    """Moves generators of the host as fills would that are not made; `drawn` counts through the draws."""

    def __init__(self, torch: Torch, drawn: Any) -> None:
        self._torch = torch
        self._drawn = drawn

    def move(self, fill: Any, like: Tensor, generator: Any) -> bool:
        """As if `fill` had drawn numbers for a tensor like this; false if that cannot be done."""
        if self._drawn is None:
            return False
        n, dtype = like.numel() * (2 if like.is_complex() else 1), like.dtype.to_real()
        rest = n % _AT_ONCE
        few, more = self._of_a_few(fill, dtype, _AT_ONCE), self._of_a_few(fill, dtype, _AT_ONCE + rest)
        generator = self._torch.default_generator if generator is None else generator
        state = generator.get_state()
        is_known = draws.draw(self._drawn, state, (n // _AT_ONCE - 1) * few + more)
        if is_known:
            generator.set_state(state)
        return bool(is_known)

    @functools.cache  # noqa: B019 - It lives as long as the process.
    def _of_a_few(self, fill: Any, dtype: Any, n: int) -> Any:
        """How many numbers of 32 bits such a fill of a few takes: tried."""
        torch = self._torch
        generator = torch.Generator().manual_seed(0)
        _on_host(torch, 1, torch.float32).uniform_(generator=generator)  # From here on it counts up.
        before = _drawn_so_far(generator)
        getattr(_on_host(torch, n, dtype), fill)(generator=generator)
        return _drawn_so_far(generator) - before


class _Operations:
    """What comes of operations on tensors of which some are, or will be, ghosts. `take` gives an address for so many bytes,
    and `gone` gets it back; `drawn` moves a generator's state."""

    def __init__(self, torch: Torch, take: Function, gone: Any, drawn: Any) -> None:
        self._torch = torch
        self._take, self._gone, self._draws = take, gone, _Draws(torch, drawn)
        self._to_copy = torch.ops.aten._to_copy.default
        self._copy = torch.ops.aten.copy_.default
        self._pin = torch.ops.aten._pin_memory.default
        self.pins = False

    def done(self, kind: Any, func: Any, args: Any, kwargs: Named) -> Any:
        """(whether we did it, what came of it); `kind` is the operation's, see `_kind`."""
        if kind == "factory":
            return self._made(func, args, kwargs)
        tensors = list(_tensors(self._torch, args, kwargs))
        if any(type(it) not in (self._torch.Tensor, self._torch.nn.Parameter) for it in tensors):
            return False, None
        if not any(_is_large(it) for it in tensors):
            return self._to_host(func, tensors, kwargs)
        devices = {it.device.type for it in tensors}
        if devices != {"cpu"}:
            return self._across(func, args, kwargs, devices)
        target = kwargs.get("device")
        if target is not None and self._torch.device(target).type != "cpu":
            return self._to_device(func, args, kwargs)
        if kind == "fills":
            return self._filled(func, args, kwargs)
        if func is self._pin:
            return True, self._pinned(args[0])
        return self._computed(func, args, kwargs)

    # New tensors.

    def _made(self, func: Any, args: Any, kwargs: Named) -> tuple[bool, Any]:
        device = kwargs.get("device")
        if device is not None and self._torch.device(device).type != "cpu":
            return False, None
        if device is None and self._torch._C._get_default_device() != "cpu":
            return False, None
        options = dict(kwargs, device="meta", pin_memory=False)
        if "generator" in options:
            options["generator"] = None  # It is the host's.
        shape = func(*args, **options)
        if not _is_large(shape, "meta"):
            return False, None
        self._draw(func, shape, kwargs.get("generator"))
        if kwargs.get("pin_memory"):
            return True, self._pinned(shape)
        return True, self._ghost(shape)

    def _pinned(self, like: Tensor) -> Any:
        self.pins = True
        return self._torch.empty_strided(like.size(), like.stride(), dtype=like.dtype, pin_memory=True)

    def _draw(self, func: Any, like: Tensor, generator: Any) -> None:
        """Moves the generator as if `func` had drawn numbers for a tensor like this."""
        torch = self._torch
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return
        name = func._schema.name.rpartition("::")[2]
        if name in _NORMAL or name in _UNIFORM:  # How many another one draws is not known here.
            self._draws.move("normal_" if name in _NORMAL else "uniform_", like, generator)

    def _ghost(self, like: Tensor) -> Any:
        """A tensor on the host with the shape of `like`, over memory that is not there."""
        span = sum((n - 1) * step for n, step in zip(like.size(), like.stride())) + 1
        size = span * like.element_size()
        start = self._take(size)
        if not start:
            raise MemoryError("no address space for a ghost of %d bytes" % size)
        memory = (ctypes.c_char * size).from_address(start)
        weakref.finalize(memory, self._gone, start).atexit = False
        storage = self._torch.frombuffer(memory, dtype=self._torch.uint8).untyped_storage()
        return _on_host(self._torch, 0, like.dtype).set_(storage, 0, like.size(), like.stride())

    # Between host and device.

    def _to_host(self, func: Any, tensors: Any, kwargs: Named) -> tuple[bool, Any]:
        """A large copy from the device needs a ghost to arrive in."""
        if func is not self._to_copy or tensors[0].device.type != "cuda":
            return False, None
        if self._torch.device(kwargs.get("device") or "cuda").type != "cpu":
            return False, None
        source, dtype = tensors[0], kwargs.get("dtype") or tensors[0].dtype
        shape = self._torch.empty_like(source, dtype=dtype, device="meta")
        if not _is_large(shape, "meta"):
            return False, None
        arrived = self._pinned(shape) if kwargs.get("pin_memory") else self._ghost(shape)
        return True, arrived.copy_(source, non_blocking=bool(kwargs.get("non_blocking")))

    def _across(self, func: Any, args: Any, kwargs: Named, devices: Any) -> tuple[bool, Any]:
        """The host's part of a copy to the device is done for nothing, the device's for real."""
        if func is not self._copy or devices != {"cpu", "cuda"}:
            return False, None
        to, source = args[:2]
        if to.device.type != "cuda" or to.dtype == source.dtype:
            return False, None
        return True, self._converted_into(to, bool(args[2:] and args[2] or kwargs.get("non_blocking")))

    def _to_device(self, func: Any, args: Any, kwargs: Named) -> tuple[bool, Any]:
        dtype = kwargs.get("dtype")
        if func is not self._to_copy or dtype in (None, args[0].dtype):
            return False, None
        shape = func(_on_meta(self._torch, args[0]), **dict(kwargs, device="meta", pin_memory=None))
        to = self._torch.empty_strided(shape.size(), shape.stride(), dtype=dtype, device=kwargs["device"])
        return True, self._converted_into(to, bool(kwargs.get("non_blocking")))

    def _converted_into(self, to: Any, non_blocking: Any) -> Any:
        """PyTorch converts on the host, and needs a target in one piece, as `copy_kernel_cuda` has it."""
        piece = to if to.is_contiguous() else self._torch.empty_like(to, memory_format=self._torch.contiguous_format)
        piece.copy_(self._ghost(self._torch.empty_like(piece, device="meta")), non_blocking=non_blocking)
        return to if piece is to else to.copy_(piece, non_blocking=non_blocking)

    # On the host.

    def _filled(self, func: Any, args: Any, kwargs: Named) -> tuple[bool, Any]:
        """An operation that writes its arguments, if those are what would be ghosts."""
        written = []
        for position, argument in enumerate(func._schema.arguments):
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            if argument.alias_info is not None and argument.alias_info.is_write and value is not None:
                written.append(value)
        flat = list(_tensors(self._torch, written, {}))
        if not any(_is_large(it) for it in flat):
            return False, None
        self._draw(func, flat[0], kwargs.get("generator"))
        returned = [it for it in written if isinstance(it, self._torch.Tensor)]
        count = len(func._schema.returns)
        return True, None if count == 0 else returned[0] if count == 1 else tuple(returned[:count])

    def _computed(self, func: Any, args: Any, kwargs: Named) -> tuple[bool, Any]:
        """What comes out has the shape that PyTorch says, and no values."""
        meta = functools.partial(_on_meta, self._torch)
        options = {name: meta(value) for name, value in kwargs.items()}
        if options.get("device") is not None:
            options["device"] = "meta"
        options.pop("pin_memory", None)
        try:
            shapes = func(*[meta(it) for it in args], **options)
        except (NotImplementedError, RuntimeError):
            return False, None  # Its shape, or what it says, depends on the values.
        if isinstance(shapes, self._torch.Tensor) and _is_large(shapes, "meta"):
            self._draw(func, shapes, kwargs.get("generator"))
        return True, self._from_meta(shapes)

    def _from_meta(self, it: Any) -> Any:
        if isinstance(it, self._torch.Tensor):
            if LARGE <= it.numel() * it.element_size():
                return self._ghost(it)
            return self._torch.empty_strided(it.size(), it.stride(), dtype=it.dtype).zero_()
        if isinstance(it, (list, tuple)):
            return type(it)(self._from_meta(part) for part in it)
        return it


def _on_host(torch: Torch, n: int, dtype: Any) -> Any:
    """Not by `empty`: while DeepSpeed makes a model, that is its own, on the device and in another dtype."""
    return torch.empty_strided((n,), (1,), dtype=dtype, device="cpu")


def _drawn_so_far(generator: Any) -> Any:
    """Of the words that its state has: `next` of `CPUGeneratorImplState`."""
    return int.from_bytes(bytes(generator.get_state()[16:24].tolist()), "little")


def _kind(torch: Torch, func: Any) -> str:
    """What an operation is to us: `real`, `factory`, `fills` or `computes`."""
    schema, tags = func._schema, func.tags
    name = schema.name.rpartition("::")[2]
    if name in _AS_IT_IS or torch.Tag.inplace_view in tags or not schema.name.startswith(("aten::", "prims::")):
        return "real"
    written = any(it.alias_info is not None and it.alias_info.is_write for it in schema.arguments)
    if written:
        return "fills"
    if any(it.alias_info is not None for it in schema.returns):
        return "real"  # A view.
    takes = any("Tensor" in str(it.type) for it in schema.arguments)
    if takes:
        return "computes"
    makes = len(schema.returns) == 1 and str(schema.returns[0].type) == "Tensor"
    return "factory" if makes and any(it.name == "device" for it in schema.arguments) else "real"


def _tensors(torch: Torch, args: Any, kwargs: Named) -> Iterator[Any]:
    for it in (*args, *kwargs.values()):
        if isinstance(it, torch.Tensor):
            yield it
        elif isinstance(it, (list, tuple)):
            yield from _tensors(torch, it, {})


def _is_large(it: Any, device: Any = "cpu") -> bool:
    if it.device.type != device or not (it.is_floating_point() or it.is_complex()):
        return False
    return LARGE <= it.numel() * it.element_size()


def _on_meta(torch: Torch, it: Any) -> Any:
    if isinstance(it, torch.Tensor):
        return torch.empty_strided(it.size(), it.stride(), dtype=it.dtype, device="meta")
    if isinstance(it, (list, tuple)):
        return type(it)(_on_meta(torch, part) for part in it)
    return it
