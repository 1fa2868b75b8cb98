"""Training goes on when memory runs out: where the agent hooks in, and what it tries.

In a call of a model: the call is made again as it is, once what was left of it is gone; then with what backward needs on the
host; then in parts of the batch. In backward: PyTorch keeps the graph of each pass, so the pass is made again for those parameters
that have not got their gradient yet, with what calls saved on the host; then with the calls in parts. In a loss between the
two: the model's calls let go of what they saved, and are made again when backward asks for it.

Every way but the last gives the same numbers; parts are taken only where they give them, too, up to rounding: of a model
without batch-norm. What parts draw is what the whole would have drawn for them.

In steps where nothing runs out a call is watched only. What it saved goes as backward comes to it, as without us; what it was
given is kept until backward ends; and what the script itself computes between models and loss keeps what it saved as long as
the script keeps its loss.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import re
import sys
import time
import traceback
import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.remedies import chunked_loss, micro_batches
from plimsoll_agent.remedies.support import split
from plimsoll_agent.remedies.support.host import Host
from plimsoll_agent.remedies.support.rerun import without_cache
from plimsoll_agent.remedies.support.ways import is_exact
from plimsoll_agent.run import frames
from plimsoll_agent.run.guard import guarded
from plimsoll_agent.run.nested import tensors_in
from plimsoll_agent.survive import CannotRedo, graph
from plimsoll_agent.survive.call import Call, Pass, Waiting
from plimsoll_agent.survive.draws import CannotDraw, Draws
from plimsoll_agent.survive.state import Places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from plimsoll_agent.kinds import Arguments, Backward, Bounds, E, Function, Module, Named, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks
    from plimsoll_agent.run.oom import OutOfMemory
    from plimsoll_agent.run.recording import Recording
    from plimsoll_agent.survive.state import Then

_PARTS = (2, 4, 8, 16, 32)

_LIKE_RUNNING_OUT = ("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUDA error: out of memory")

_ASKED = re.compile(r"Tried to allocate ([\d.]+ \w+)")

_TOGETHER = "several ranks train together, and the others would have to repeat the same work"

_LOSSES = ("cross_entropy", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "log_softmax", "softmax")


def apply(torch: Torch, hooks: Hooks, recording: Recording, oom: OutOfMemory, step_of: Callable[[], int]) -> Survival:
    """Takes hold of calls and backward. `step_of()` is the number of steps that are done."""
    survival = Survival(torch, hooks, recording, oom, step_of)
    hooks.around_call(survival.around_call)
    hooks.around_plain_call(survival.around_loss)
    hooks.around_backward(survival.around_backward)
    hooks.after_last_backward(survival.graph_is_used_up)
    hooks.keep_graph_where(survival.keeps_graph)
    survival.watch_losses()
    _without_donated_buffers()
    return survival


class Survival:
    """What is stored about the current step."""

    def __init__(self, torch: Torch, hooks: Hooks, recording: Recording, oom: OutOfMemory, step_of: Callable[[], int]) -> None:
        self._torch, self._hooks, self._recording, self._step_of = torch, hooks, recording, step_of
        self._oom = oom
        self._host = Host(torch)
        self._places: weakref.WeakKeyDictionary[Module, Places] = weakref.WeakKeyDictionary()
        self._ways: weakref.WeakKeyDictionary[Module, Any] = weakref.WeakKeyDictionary()
        self._pending: weakref.WeakSet[Call] = weakref.WeakSet()  # Calls whose graph waits for backward.
        self._pass = Pass(torch)
        self._used: list[Call] = []  # Calls whose graph the backward pass that ended last has used up.
        self._without_hooks: weakref.WeakSet[Module] = weakref.WeakSet()  # Models that do not bear functions around what autograd saves.
        self._of_functions: Places | None = None
        self._has_cross_entropy = False  # In the call that was made last.
        self._of_chunks: Any = None  # PyTorch's cross-entropy, some rows at a time.
        self._in_chunks = False

    # Calls of models.

    def around_call(self, module: Module | None, call: Function, args: Arguments, kwargs: Named) -> Any:
        if not self._may_redo(module):
            return self._as_ever(call, args, kwargs)
        if module not in self._places:
            self._places[module] = Places(self._torch, module)
        if not self._hooks.is_training(module, (args, kwargs)):
            return self._look_only(self._places[module], call, args, kwargs)
        return self._made(module, self._places[module], call, args, kwargs)

    def _as_ever(self, call: Function, args: Arguments, kwargs: Named) -> Any:
        try:
            return call(*args, **kwargs)
        except RuntimeError as raised:
            if self._ran_out(raised) and self._has_company():
                self._write(refused=_TOGETHER, error=raised, phase="forward")
            raise

    def _made(self, module: Module | None, places: Places, call: Function, args: Arguments, kwargs: Named) -> Any:
        """The output of a call, which is watched until backward."""
        then = places.now()
        made = Call(self._torch, self._hooks, self._host, self._pass, module, call, args, kwargs, then)
        error = None
        self._has_cross_entropy = False
        try:
            output = made.run()
        except RuntimeError as raised:
            if "saved tensor hooks" in str(raised):
                # torch.func and others do not allow them.
                if module is not None:
                    self._without_hooks.add(module)
                then.put()
                return call(*args, **kwargs)
            if not self._ran_out(raised):
                raise
            error = _without_frames(raised)
        if error is not None:
            made, output = self._call_again(module, made, call, args, kwargs, then, error)
        made.drew = then.drew()
        places.learn(then)
        if made.watch(output):
            self._pending.add(made)
        return output

    def _may_redo(self, module: Module | None) -> bool:
        torch = self._torch
        if (module is not None and module in self._without_hooks) or getattr(module, "_is_replica", False) or torch.compiler.is_compiling():
            return False
        if isinstance(module, torch.nn.DataParallel) or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()):
            return False
        return not self._has_company()

    def _has_company(self) -> bool:
        dist = self._torch.distributed
        return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

    def _call_again(
        self, module: Module | None, made: Call, call: Function, args: Arguments, kwargs: Named, then: Then, error: Exception
    ) -> tuple[Any, Any]:
        """The call and its output, made in the first way that fits."""
        why: Any
        began, why, last = time.time(), None, error
        self._oom.is_done_again()
        for way, run in self._ways_forward(module, made, call, args, kwargs, then):
            self._make_room(made)
            try:
                made.check(for_backward=False)
                then.put()
                again = Call(self._torch, self._hooks, self._host, self._pass, module, call, args, kwargs, then)
                output = run(again)
            except CannotRedo as refused:
                why = refused
                break
            except Exception as raised:
                _without_frames(raised)
                if not self._ran_out(raised):
                    why = "the second attempt failed (%s: %s)" % (type(raised).__name__, raised)
                    break
                last = raised
                continue
            self._write(way=way, error=last, seconds=time.time() - began, phase="forward")
            return again, output
        self._write(refused=str(why or self._why_no_parts([made])), error=error, phase="forward")
        raise error

    def _ways_forward(
        self, module: Module | None, made: Call, call: Function, args: Arguments, kwargs: Named, then: Then
    ) -> Iterator[Any]:
        yield "again", lambda it: it.run()
        yield "host", lambda it: it.run(on_host=True)
        if self._has_cross_entropy:
            yield "chunks", self._run_in_chunks
        made.drew = then.drew()
        batch = self._batch_of(made, call, args, kwargs)
        if batch is not None:
            whole, along, way, _ = batch
            for parts in _PARTS:
                if parts <= whole:
                    bounds = split.bounds_of(whole, parts)
                    recomputed = functools.partial(self._recomputed, module, (whole, along), bounds, way, then)
                    yield "parts:%d" % parts, lambda it, run=recomputed: it.run_as(run)

    def _run_in_chunks(self, again: Call) -> Any:
        again.around = self._chunks
        return again.run(on_host=True)

    def _recomputed(
        self, module: Module | None, batch: Any, bounds: list[tuple[int, int]], way: Any, then: Then, call: Function, args: Arguments, kwargs: Named
    ) -> Any:
        draws = Draws(self._torch)

        @contextlib.contextmanager
        def around(start: int, end: int) -> Iterator[None]:
            then.put_random()
            with draws.of_part(batch[0], start, end):
                yield

        with without_cache(module, kwargs):
            output = micro_batches.recomputed(self._torch, module, call, args, kwargs, batch, _uneven(bounds), way, around)
        draws.check()
        return output

    def _look_only(self, places: Places, call: Function, args: Arguments, kwargs: Named) -> Any:
        """A call without gradients."""
        then = places.now()
        try:
            return call(*args, **kwargs)
        except RuntimeError as raised:
            if not self._ran_out(raised) or not self._pending:
                raise
            error = _without_frames(raised)
        # What lives beside it may go: calls of the training step that is under way.
        began = time.time()
        self._oom.is_done_again()
        self._make_room()
        then.put()
        again = None
        try:
            output = call(*args, **kwargs)
        except RuntimeError as raised:
            if not self._ran_out(raised):
                self._oom.was_done_again()
                raise
            again = _without_frames(raised)
        if again is not None:
            self._write(refused="memory ran out again", error=error, phase="evaluation")
            raise error
        self._write(way="room", error=error, seconds=time.time() - began, phase="evaluation")
        return output

    # Losses, and other calls without parameters.

    def around_loss(self, module: Module | None, call: Function, args: Arguments, kwargs: Named) -> Any:
        """A call of a module without parameters or, with None, of a function: what it is given has gradients of its own."""
        torch = self._torch
        if self._hooks.is_inside or torch._C._current_graph_task_id() != -1 or not torch.is_grad_enabled():
            return call(*args, **kwargs)
        if not any(it.requires_grad for it in tensors_in(torch, (args, kwargs))) or not self._may_redo(module):
            return call(*args, **kwargs)
        if module is None:
            places = self._of_functions = self._of_functions or Places(torch, None)
        else:
            places = self._places[module] = self._places.get(module) or Places(torch, module)
        with self._hooks.as_one_call():
            return self._made(module, places, call, args, kwargs)

    def watch_losses(self) -> None:
        """PyTorch's functions that are losses, under each of their names."""
        torch = self._torch
        functional = torch.nn.functional
        self._of_chunks = chunked_loss.in_chunks(torch, functional.cross_entropy)
        names = [it for it in dir(functional) if (it.endswith("_loss") or it in _LOSSES) and not it.startswith("_")]
        originals = {it: getattr(functional, it) for it in names}

        def wrapped(name: str, function: Function) -> Function:
            call = functools.partial(self._cross_entropy, function) if name == "cross_entropy" else function

            @functools.wraps(function)
            def loss(*args: Any, **kwargs: Any) -> Any:
                if torch.compiler.is_compiling():
                    return function(*args, **kwargs)
                return self.around_loss(None, call, args, kwargs)

            return loss

        ours = [patch.put(functional, name, wrapped(name, function)) for name, function in originals.items()]
        script = torch.jit.script

        def scripted(*args: Any, **kwargs: Any) -> Any:
            # It compiles what it finds by these names.
            away = [it for it in ours if it.undo()]
            try:
                return script(*args, **kwargs)
            finally:
                for it in away:
                    it.redo()

        patch.put(torch.jit, "script", scripted)

    def _cross_entropy(self, original: Function, *args: Any, **kwargs: Any) -> Any:
        self._has_cross_entropy = True
        return (self._of_chunks if self._in_chunks else original)(*args, **kwargs)

    @contextlib.contextmanager
    def _chunks(self) -> Iterator[None]:
        """Cross-entropies inside are computed some rows at a time."""
        self._in_chunks = True
        try:
            yield
        finally:
            self._in_chunks = False

    # Backward.

    def keeps_graph(self) -> bool:
        """Whether PyTorch is to keep the graph of the backward pass that begins, so that it can be made again."""
        return self._pass.is_kept_by_us

    def around_backward(self, run: Backward, tensors: Any, grad_tensors: Any) -> Any:
        torch, pending = self._torch, list(self._pending)
        # One inside another is a checkpoint's.
        if not pending or torch._C._current_graph_task_id() != -1:
            return run(tensors, grad_tensors)
        options = self._hooks.backward_options
        before = _marks(pending, graph.outside_of_calls(torch, tensors).leaves)
        del pending
        is_over = False
        self._pass.begin(is_kept_by_us=not options["retain_graph"] and not options["create_graph"])
        try:
            result = self._one_pass(run, tensors, grad_tensors, before)
            is_over = self._pass.is_kept_by_us
            return result
        finally:
            self._used = list(self._pass.calls) if is_over else []
            self._pass.end()

    def _one_pass(self, run: Backward, tensors: Any, grad_tensors: Any, before: Any) -> Any:
        try:
            return run(tensors, grad_tensors)
        except RuntimeError as raised:
            if not self._ran_out(raised):
                raise
            error = _without_frames(raised)
        began, why, way = time.time(), None, None
        self._oom.is_done_again()
        try:
            way = self._backward_again(tensors, grad_tensors, before)
        except CannotRedo as refused:
            why = str(refused)
        except Exception as raised:
            _without_frames(raised)
            why = "memory ran out again" if self._ran_out(raised) else "the second attempt failed (%s: %s)" % (type(raised).__name__, raised)
        if why is not None:
            self._write(refused=why, error=error, phase="backward")
            raise error
        self._write(way=way, error=error, seconds=time.time() - began, phase="backward")

    def graph_is_used_up(self, tensors: Any) -> None:
        """After a backward pass whose graph the script does not keep."""
        if self._torch._C._current_graph_task_id() == -1:
            for call in self._used:
                self._pending.discard(call)
                call.is_done_with()
            self._used = []

    def _backward_again(self, tensors: Any, grad_tensors: Any, before: Any) -> Any:
        """Makes the pass again for what has no gradient yet. Its graph is whole; calls are made again for what they let go of."""
        torch, options = self._torch, self._hooks.backward_options
        if options["create_graph"] or options["others"]:
            raise CannotRedo("it asked backward for more than the gradients of all parameters (`create_graph`, `inputs`)")
        nodes, left = graph.below(it.node for it in graph.edges_of(torch, tensors)), _WithoutGradient(before)
        leaves = [it.variable for it in nodes if hasattr(it, "variable")]
        calls = list(dict.fromkeys(it.metadata[graph.KEY][0] for it in nodes if graph.KEY in it.metadata))
        theirs = graph.outside_of_calls(torch, tensors).of_the_script
        if theirs:
            raise CannotRedo("the script computes with its own function `%s`, and what this function saves is unknown" % theirs[0])
        for call in calls:
            call.check(for_backward=True)
        if any(graph.is_an_older_checkpoint(torch, it) for it in nodes):
            left.undo()
        del nodes
        self._make_room()
        with self._hooks.as_one_call():
            try:
                wanted = [it for it in leaves if left.has(it)]
                if left.is_undone:
                    # These checkpoints do not go with `inputs`, and everything is wanted.
                    torch.autograd.backward(tensors, grad_tensors, retain_graph=True)
                elif wanted:
                    torch.autograd.backward(tensors, grad_tensors, retain_graph=True, inputs=wanted)
                way = "host"
            except RuntimeError as raised:
                if not self._ran_out(raised):
                    raise
                _without_frames(raised)
                way = None
            if way is None:
                self._make_room()
                try:
                    parts = self._in_parts_again(tensors, grad_tensors, calls, leaves, left)
                except RuntimeError as raised:
                    if not self._ran_out(raised):
                        raise
                    _without_frames(raised)
                    raise CannotRedo(self._why_no_parts(calls)) from None
                way = "parts:%d" % parts if parts else "chunks"
        for call in calls:
            self._pass.calls[call] = None
        return way

    def _in_parts_again(self, tensors: Any, grad_tensors: Any, calls: list[Call], leaves: Any, left: _WithoutGradient) -> Any:
        """The same, call by call: in parts of its batch where that can be, else with its cross-entropy some rows at a time.
        Returns in how many parts the largest was."""
        torch = self._torch
        batches = {}
        for call in calls:
            with call.as_it_was():
                batch = call.run_as(functools.partial(self._batch_of, call))
            if batch is not None:
                batches[call] = batch
        if left.is_undone:
            left.undo()
        else:
            left = left.of_these()
        if any(left.has(it) and it._backward_hooks for it in leaves):
            raise CannotRedo("a parameter has a hook of the script's own, which would see parts of its gradient")
        parts, roots, gradients = 0, tensors, grad_tensors
        while True:
            reached = graph.before_calls(torch, roots, calls)
            if _are_mixed(reached):
                # A loss of what else the script computes from its models' outputs: only these are taken apart.
                reached = graph.before_calls(torch, roots, batches)
            if _are_mixed(reached):
                raise CannotRedo("the script uses tensors that the loss of its model is computed from, besides the loss")
            if reached.is_past_outputs:
                raise CannotRedo("the script uses tensors that its model did not return")
            wanted = [it for it in reached.leaves if left.has(it)]
            edges = [it for edges in reached.calls.values() for it in edges.values()]
            theirs = graph.below(it.node for it in edges)
            shared = _Shared(reached, wanted, theirs)
            wanted = [it for it in wanted if it not in shared]
            del theirs
            if wanted:
                torch.autograd.backward(roots, gradients, retain_graph=True, inputs=wanted)
            if not reached.calls:
                return parts
            places = [(call, number, edge) for call, edges in reached.calls.items() for number, edge in edges.items()]
            asked = [it[2] for it in places] + [torch.autograd.graph.GradientEdge(it, 0) for it in shared.nodes]
            found = torch.autograd.grad(roots, asked, gradients, retain_graph=True, allow_unused=True)
            shared.accumulate(torch, found[len(places):])
            found = {it[:2]: Waiting.sent(self._host, gradient) for it, gradient in zip(places, found) if gradient is not None}
            roots, gradients = [], []
            del places, edges, asked, shared
            for call in reached.calls:
                of_outputs = {number: found.pop((call, number)) for number in reached.calls[call] if (call, number) in found}
                if not of_outputs:
                    continue
                inputs, n = self._call_again_in_parts(call, of_outputs, left, batches.get(call))
                parts = max(parts, n)
                edges = call.inputs_with_gradients()
                roots += [edges[number] for number in inputs]
                gradients += list(inputs.values())
                call.is_done_with()
                del inputs
            if not roots:
                return parts

    def _call_again_in_parts(self, call: Call, gradients: Any, left: _WithoutGradient, batch: Any) -> tuple[Any, ...]:
        """The gradients of its inputs, and in how many parts it was made."""
        self._make_room()
        inputs: dict[int, Any]
        inputs, counted = {}, [0]
        try:
            if batch is not None:
                self._part_again(call, gradients, left, batch, 0, batch[0], inputs, counted)
        except CannotDraw:
            if counted[0]:
                raise
        if not counted[0]:
            with self._chunks():
                return call.backward_again(gradients, left.has), 0
        if batch[-1] is not None:
            batch[-1].check()
        return inputs, counted[0]

    def _part_again(
        self, call: Call, gradients: Any, left: _WithoutGradient, batch: Any, start: int, end: int, inputs: Any, counted: Any
    ) -> None:
        """Samples `start..end`, in halves if they do not fit: what got its gradient of all of them gets none of a half."""
        whole, along, way, draws = batch
        if end - start < whole:  # The whole has been tried.
            left = left.as_they_are()
            try:
                got = call.backward_again(gradients, left.has, (whole, along, start, end, way, draws))
            except RuntimeError as raised:
                if not self._ran_out(raised) or end - start < 2:
                    raise
                _without_frames(raised)
            else:
                counted[0] += 1
                for number, gradient in got.items():
                    _gather(inputs, number, gradient, along[number], whole, start)
                return
            if left.is_undone and left.has_moved():
                raise CannotRedo("memory ran out again for a part of its batch, inside a checkpoint with `use_reentrant=True`")
            left = left.of_these()
        self._make_room()
        middle = (start + end) // 2
        if draws is not None and middle - start == end - middle and 1 < middle - start:
            middle -= 1
        self._part_again(call, gradients, left, batch, start, middle, inputs, counted)
        self._part_again(call, gradients, left, batch, middle, end, inputs, counted)

    # What both need.

    def _batch_of(self, made: Call, call: Function, args: Arguments, kwargs: Named) -> tuple[Any, ...] | None:
        """The batch's size, along what each input has it, how parts belong together, and what they draw; None if parts give other numbers."""
        module, torch = made.module(), self._torch
        if module is None or next(module.parameters(), None) is None or _has_batch_norm(torch, module):
            return None
        whole = split.batch_size(torch, args, kwargs)
        if whole is None or whole < 2:
            return None
        if module not in self._ways:
            with self._hooks.as_one_call():
                try:
                    self._ways[module] = micro_batches.way_of_batch(torch, module, call, args, kwargs, whole)
                except torch.OutOfMemoryError:
                    return None
                except Exception:
                    self._ways[module] = None
        way = self._ways[module]
        draws = Draws(torch) if made.drew or not is_exact(torch, module) else None
        return None if way is None else (*way.batch_of(torch, args, kwargs, whole), way, draws)

    def _why_no_parts(self, calls: Iterable[Call]) -> str:
        if any(it.module() is not None and _has_batch_norm(self._torch, it.module()) for it in calls):
            return "it does not fit with all that backward needs in host memory, and its batch-norm would have other statistics in parts of the batch"
        return "it does not fit with all that backward needs in host memory, nor in parts of the batch"

    def _make_room(self, but: Any = None) -> None:
        """Calls that wait for backward let go of what they saved, and the allocator's cache goes."""
        for it in list(self._pending):
            if it is not but and it.can_be_made_again():
                it.let_go()
        gc.collect()
        if self._torch.cuda.is_initialized():
            self._torch.cuda.empty_cache()

    def _ran_out(self, error: BaseException) -> bool:
        return isinstance(error, self._torch.OutOfMemoryError) or any(it in str(error) for it in _LIKE_RUNNING_OUT)

    @guarded
    def optimizer_failed(self, error: BaseException) -> None:
        """An optimizer's step raised."""
        if self._ran_out(error):
            self._write(refused="the optimizer's step may be half applied", error=error, phase="optimizer")

    def _write(self, error: BaseException | None = None, **fields: Any) -> None:
        if "refused" in fields:
            self._oom.was_refused()
        else:
            self._oom.was_done_again()
        place = frames.user_frame(frames.stack(sys._getframe(1)))
        asked = _ASKED.search(str(error))
        self._recording.write("redone", step=self._step_of(), user_frame=place, asked=asked.group(1) if asked else "", **fields)


def _without_donated_buffers() -> None:
    """Compiled models overwrite what they saved, unless an option says that a graph may be retained. With it they refuse to retain it."""
    from torch._functorch import config

    if hasattr(config, "donated_buffer"):
        config.donated_buffer = False


def _marks(calls: Iterable[Call], others: Any) -> Any:
    """Of every parameter whose gradient is to come: which one it has."""
    leaves = {id(it): it for it in (*(leaf for call in calls for leaf in call.leaves()), *others)}
    return {key: (it, it.grad, None if it.grad is None else it.grad._version) for key, it in leaves.items()}


def _has_batch_norm(torch: Torch, module: Module) -> bool:
    return any(isinstance(it, torch.nn.modules.batchnorm._NormBase) for it in module.modules())


def _uneven(bounds: Bounds) -> Bounds:
    """The same number of parts, not all of one size."""
    ends = [end for _, end in bounds]
    if len({end - start for start, end in bounds}) == 1 and 1 < len(bounds) and 1 < ends[0]:
        ends[0] -= 1
    return list(zip([0, *ends], ends))


def _are_mixed(reached: Any) -> bool:
    """Whether a backward pass from one of these calls goes through another one, or from one of its outputs through another."""
    for call, edges in reached.calls.items():
        nodes = {it.node for it in edges.values()}
        for it in graph.below(below for node in nodes for below, _ in node.next_functions):
            other = it.metadata[graph.KEY][0] if graph.KEY in it.metadata else call
            if it in nodes or (other is not call and other in reached.calls):
                return True
    return False


def _gather(gradients: Any, number: int, part: Tensor, dimension: int, whole: int, start: int) -> None:
    """Adds to the gradients of a call's inputs what one of them, or samples of it, got."""
    if dimension is None:
        gradients[number] = part if number not in gradients else gradients[number] + part
        return
    if number not in gradients:
        shape = list(part.shape)
        shape[dimension] = whole
        gradients[number] = part.new_zeros(shape)
    gradients[number].narrow(dimension, start, part.size(dimension)).copy_(part)


class _Shared:
    """Parameters that the script's own computations use, and calls as well: a penalty on a model's weights.

    What they get from beside the calls comes from the nodes that use them there.
    """

    def __init__(self, reached: graph.Reached, wanted: Any, theirs: Any) -> None:
        of_calls = {id(it.variable) for it in theirs if hasattr(it, "variable")}
        self._ids = {id(it) for it in wanted if id(it) in of_calls}
        self.nodes = [it for it in reached.uses if any(self._is_shared(below) for below, _ in it.next_functions)] if self._ids else []
        if any(it in theirs or reached.uses[it] != {0} for it in self.nodes):
            raise CannotRedo("its loss uses parameters outside the call of the model")

    def __contains__(self, leaf: object) -> bool:
        return id(leaf) in self._ids

    def _is_shared(self, node: Any) -> bool:
        return hasattr(node, "variable") and id(node.variable) in self._ids

    def accumulate(self, torch: Torch, gradients: Any) -> None:
        """Runs these nodes, with the gradient of what each returned."""
        for node, gradient in zip(self.nodes, gradients):
            if gradient is None:
                continue
            given = node(gradient)
            for (below, _), it in zip(node.next_functions, given if isinstance(given, tuple) else (given,)):
                if it is not None and self._is_shared(below):
                    torch.autograd.backward(below.variable, it)


class _WithoutGradient:
    """The parameters that have got no gradient since `before`."""

    def __init__(self, before: dict[Tensor, Any], ids: set[int] | None = None, is_undone: bool = False) -> None:
        self._before = before
        self.is_undone = is_undone  # Gradients came in several parts each, and have been taken back.
        if ids is None:
            ids = {key for key, (it, grad, version) in before.items() if _is_same(it, grad, version)}
        self._ids = ids

    def has(self, parameter: Tensor) -> bool:
        if id(parameter) not in self._before:
            raise CannotRedo("a gradient goes to a parameter that is in none of its models")
        return id(parameter) in self._ids

    def undo(self) -> None:
        """Removes the gradients that came since: then all of them are without one."""
        for it, grad, version in self._before.values():
            if not _is_same(it, grad, version):
                if grad is not None:
                    raise CannotRedo("its checkpoints have `use_reentrant=True`, and the script adds to existing gradients")
                it.grad = None
        self._ids, self.is_undone = set(self._before), True

    def has_moved(self) -> bool:
        """Whether any of them got a gradient."""
        return any(not _is_same(*self._before[key]) for key in self._ids)

    def as_they_are(self) -> _WithoutGradient:
        """The same, to be asked later which of them got a gradient from now on."""
        now = {key: (it, it.grad, None if it.grad is None else it.grad._version) for key, (it, _, _) in self._before.items()}
        return _WithoutGradient(now, self._ids, self.is_undone)

    def of_these(self) -> _WithoutGradient:
        """Those of them that have still not got one."""
        return _WithoutGradient(self._before, {key for key in self._ids if _is_same(*self._before[key])}, self.is_undone)


def _is_same(parameter: Tensor, gradient: Tensor | None, version: int | None) -> bool:
    return parameter.grad is gradient and (gradient is None or gradient._version == version)


def _without_frames(error: E) -> E:
    """The same error; what it ran through is let go of, and with it the tensors there."""
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen.__traceback__ = None
        seen = seen.__context__
    return error
