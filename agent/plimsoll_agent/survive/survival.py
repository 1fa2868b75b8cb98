"""Training goes on when memory runs out: where this takes hold, and what it tries.

In a call of a model: the call is made again as it is, once what was left of it is gone; then with what backward needs on the
host; then in parts of the batch. In backward: the call is made again and its backward pass runs from the gradients of what it
had returned, into those parameters that have not got theirs yet. In a loss between the two: the model's calls let go of what
they saved, and are made again when backward asks for it.

Every way but the last gives the same numbers; parts are taken only where they give them, too, up to rounding: of a model
without batch-norm that draws no random numbers in this call.

In steps where nothing runs out a call is watched only: what it is given is kept until backward, and the gradient of
what it returned until that ends.
"""

import functools
import gc
import re
import sys
import time
import traceback
import weakref

from plimsoll_agent.remedies import micro_batches
from plimsoll_agent.remedies.support import split
from plimsoll_agent.remedies.support.host import Host
from plimsoll_agent.remedies.support.rerun import without_cache
from plimsoll_agent.remedies.support.ways import is_exact
from plimsoll_agent.run import frames
from plimsoll_agent.run.nested import tensors_in
from plimsoll_agent.survive import CannotRedo, graph
from plimsoll_agent.survive.call import Call
from plimsoll_agent.survive.state import Places

_PARTS = (2, 4, 8, 16, 32)

_LIKE_RUNNING_OUT = ("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUDA error: out of memory")

_ASKED = re.compile(r"Tried to allocate ([\d.]+ \w+)")

_TOGETHER = "several processes train together, and the others would have to do the same again"

_LOSSES = ("cross_entropy", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "log_softmax", "softmax")


def apply(torch, hooks, recording, step_of):
    """Takes hold of calls and backward. `step_of()` is the number of steps that are done."""
    survival = Survival(torch, hooks, recording, step_of)
    hooks.around_call(survival.around_call)
    hooks.around_plain_call(survival.around_loss)
    hooks.around_backward(survival.around_backward)
    hooks.after_last_backward(survival.graph_is_used_up)
    survival.watch_losses()
    return survival


class Survival:
    """What is kept of the step that is under way."""

    def __init__(self, torch, hooks, recording, step_of):
        self._torch, self._hooks, self._recording, self._step_of = torch, hooks, recording, step_of
        self._host = Host(torch)
        self._places = weakref.WeakKeyDictionary()
        self._ways = weakref.WeakKeyDictionary()
        self._pending = weakref.WeakSet()  # Calls whose graph waits for backward.
        self._in_pass = []  # Calls that the backward pass under way has come to.
        self._used = []  # Those of the pass that ended last.
        self._without_hooks = weakref.WeakSet()  # Models that do not bear functions around what autograd saves.
        self._of_functions = None

    # Calls of models.

    def around_call(self, module, call, args, kwargs):
        if not self._may_redo(module):
            return self._as_ever(call, args, kwargs)
        if module not in self._places:
            self._places[module] = Places(self._torch, module)
        if not self._hooks.is_training(module, (args, kwargs)):
            return self._look_only(self._places[module], call, args, kwargs)
        return self._made(module, self._places[module], call, args, kwargs)

    def _as_ever(self, call, args, kwargs):
        try:
            return call(*args, **kwargs)
        except RuntimeError as raised:
            if self._ran_out(raised) and self._has_company():
                self._write(refused=_TOGETHER, error=raised, phase="forward")
            raise

    def _made(self, module, places, call, args, kwargs):
        """The output of a call, which is watched until backward."""
        then = places.now()
        made = Call(self._torch, self._hooks, self._host, module, call, args, kwargs, then)
        error = None
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
        if made.watch(output, self._in_pass.append):
            self._pending.add(made)
        return output

    def _may_redo(self, module):
        torch = self._torch
        if (module is not None and module in self._without_hooks) or getattr(module, "_is_replica", False) or torch.compiler.is_compiling():
            return False
        if isinstance(module, torch.nn.DataParallel) or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()):
            return False
        return not self._has_company()

    def _has_company(self):
        dist = self._torch.distributed
        return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

    def _call_again(self, module, made, call, args, kwargs, then, error):
        """The call and its output, made in the first way that fits."""
        began, why = time.time(), None
        for way, run in self._ways_forward(module, made, call, args, kwargs, then):
            self._make_room(made)
            try:
                made.check(for_backward=False)
                then.put()
                again = Call(self._torch, self._hooks, self._host, module, call, args, kwargs, then)
                output = run(again)
            except CannotRedo as refused:
                why = refused
                break
            except Exception as raised:
                _without_frames(raised)
                if not self._ran_out(raised):
                    why = "doing it again failed (%s: %s)" % (type(raised).__name__, raised)
                    break
                error = raised
                continue
            self._write(way=way, error=error, seconds=time.time() - began, phase="forward")
            return again, output
        self._write(refused=str(why or self._why_no_parts(made)), error=error, phase="forward")
        raise error

    def _ways_forward(self, module, made, call, args, kwargs, then):
        yield "again", lambda it: it.run()
        yield "host", lambda it: it.run(on_host=True)
        made.drew = then.drew()
        batch = self._batch_of(made, call, args, kwargs)
        if batch is not None:
            whole, along, way = batch
            for parts in _PARTS:
                if parts <= whole:
                    bounds = micro_batches.bounds_of(whole, parts)
                    recomputed = functools.partial(self._recomputed, module, (whole, along), bounds, way)
                    yield "parts:%d" % parts, lambda it, run=recomputed: it.run_as(run)

    def _recomputed(self, module, batch, bounds, way, call, args, kwargs):
        with without_cache(module, kwargs):
            return micro_batches.recomputed(self._torch, module, call, args, kwargs, batch, bounds, way)

    def _look_only(self, places, call, args, kwargs):
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
        self._make_room()
        then.put()
        output = call(*args, **kwargs)
        self._write(way="room", error=error, seconds=time.time() - began, phase="evaluation")
        return output

    # Losses, and other calls without parameters.

    def around_loss(self, module, call, args, kwargs):
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

    def watch_losses(self):
        """PyTorch's functions that are losses, by whatever way they are called."""
        torch = self._torch
        functional = torch.nn.functional
        names = [it for it in dir(functional) if (it.endswith("_loss") or it in _LOSSES) and not it.startswith("_")]
        originals = {it: getattr(functional, it) for it in names}

        def wrapped(function):
            @functools.wraps(function)
            def loss(*args, **kwargs):
                if torch.compiler.is_compiling():
                    return function(*args, **kwargs)
                return self.around_loss(None, function, args, kwargs)

            return loss

        for name, function in originals.items():
            setattr(functional, name, wrapped(function))
        replaced = {it: getattr(functional, it) for it in names}
        script = torch.jit.script

        @functools.wraps(script)
        def scripted(*args, **kwargs):
            # It compiles what it finds by these names.
            for name, function in originals.items():
                setattr(functional, name, function)
            try:
                return script(*args, **kwargs)
            finally:
                for name, function in replaced.items():
                    setattr(functional, name, function)

        torch.jit.script = scripted

    # Backward.

    def around_backward(self, run, tensors, grad_tensors):
        pending = list(self._pending)
        # One inside another is a checkpoint's.
        if not pending or self._torch._C._current_graph_task_id() != -1:
            return run(tensors, grad_tensors)
        before = _marks(pending)
        del self._in_pass[:]
        del pending
        try:
            result = run(tensors, grad_tensors)
        except RuntimeError as raised:
            if not self._ran_out(raised):
                self._pass_is_over()
                raise
            error = _without_frames(raised)
        else:
            self._pass_is_over()
            return result
        began, why, way = time.time(), None, None
        try:
            way = self._backward_again(tensors, before)
        except CannotRedo as refused:
            why = str(refused)
        except Exception as raised:
            _without_frames(raised)
            why = "it ran out again" if self._ran_out(raised) else "doing it again failed (%s: %s)" % (type(raised).__name__, raised)
        finally:
            self._pass_is_over()
        if why is not None:
            self._write(refused=why, error=error, phase="backward")
            raise error
        self._write(way=way, error=error, seconds=time.time() - began, phase="backward")

    def graph_is_used_up(self, tensors):
        """After a backward pass whose graph the script does not keep."""
        for call in self._used:
            self._pending.discard(call)
            call.is_done_with()
        self._used = []

    def _pass_is_over(self):
        self._used = list(dict.fromkeys(self._in_pass))
        for call in self._used:
            call.pass_is_over()
        del self._in_pass[:]

    def _backward_again(self, tensors, before):
        torch = self._torch
        left = _Left(before)
        options = self._hooks.backward_options
        if options["create_graph"] or options["others"]:
            raise CannotRedo("it asked backward for more than gradients of all parameters (`create_graph`, `inputs`)")
        begun = list(dict.fromkeys(self._in_pass))
        if not begun:
            raise CannotRedo("it ran out in what the script computes between its model and its loss")
        # What was under way outside of calls is lost.
        reached = graph.from_tensors(torch, [tensors, *(it.continuations()[1] for it in begun)])
        if any(not numbers <= call.gradients.keys() for call, numbers in reached.calls.items()):
            raise CannotRedo("this backward pass goes through several calls of models, and had not come to one of them yet")
        if any(left.has(it) for it in reached.leaves):
            raise CannotRedo("its loss uses parameters beside the model's call")
        for call in begun:
            call.check(for_backward=True)
        self._make_room()
        parts, goes_on = 0, []
        for call in begun:
            inputs, used = self._one_backward_again(call, reached.calls[call], left)
            parts = max(parts, used)
            goes_on += [(it, inputs[number]) for number, it in call.continuations()[0].items() if number in inputs]
        if goes_on:
            # Through what comes before the calls; another model, perhaps. Its graph is whole.
            torch.autograd.backward(*zip(*goes_on), retain_graph=options["retain_graph"])
        return "parts:%d" % parts if parts else "host"

    def _one_backward_again(self, call, numbers, left):
        """The gradients of the inputs, and in how many parts it was."""
        try:
            return call.backward_again(numbers, left.has), 0
        except RuntimeError as raised:
            if not self._ran_out(raised):
                raise
            _without_frames(raised)
        with call.as_it_was():
            batch = call.run_as(functools.partial(self._batch_of, call))
        if batch is None:
            raise CannotRedo(self._why_no_parts(call))
        self._make_room()
        whole, along, way = batch
        inputs, counted = {}, [0]
        # What the whole has given its gradient in the meantime wants none of a part.
        self._part_again(call, numbers, left.of_these(), (whole, along, way), 0, whole, inputs, counted)
        return inputs, counted[0]

    def _part_again(self, call, numbers, left, batch, start, end, inputs, counted):
        """Samples `start..end`, in halves if they do not fit: what got its gradient of all of them gets none of a half."""
        whole, along, way = batch
        if end - start < whole:  # The whole has been tried.
            left = left.as_they_are()
            try:
                got = call.backward_again(numbers, left.has, (whole, along, start, end, way))
            except RuntimeError as raised:
                if not self._ran_out(raised) or end - start < 2:
                    raise
                _without_frames(raised)
            else:
                counted[0] += 1
                for number, gradient in got.items():
                    inputs[number] = gradient if number not in inputs else inputs[number] + gradient
                return
            left = left.of_these()
        self._make_room()
        middle = (start + end) // 2
        self._part_again(call, numbers, left, batch, start, middle, inputs, counted)
        self._part_again(call, numbers, left, batch, middle, end, inputs, counted)

    # What both need.

    def _batch_of(self, made, call, args, kwargs):
        """The batch's size, along what each input has it, and how parts belong together; None if parts give other numbers."""
        module, torch = made.module(), self._torch
        if module is None or next(module.parameters(), None) is None or made.drew or not is_exact(torch, module):
            return None
        whole = split.batch_size(torch, args, kwargs)
        if whole is None or whole < 2:
            return None
        if module not in self._ways:
            with self._hooks.as_one_call():
                try:
                    self._ways[module] = micro_batches.way_of_batch(torch, module, call, args, kwargs, whole)
                except Exception:
                    self._ways[module] = None
        way = self._ways[module]
        return None if way is None else (*way.batch_of(torch, args, kwargs, whole), way)

    def _why_no_parts(self, made):
        module = made.module()
        if made.drew:
            return "it does not fit with all that backward needs on the host, and parts of the batch would draw other random numbers"
        if module is not None and not is_exact(self._torch, module):
            return "it does not fit with all that backward needs on the host, and its batch-norm or dropout would see other numbers in parts of the batch"
        return "it does not fit with all that backward needs on the host, nor in parts of the batch"

    def _make_room(self, but=None):
        """Calls that wait for backward let go of what they saved, and the allocator's cache goes."""
        for it in list(self._pending):
            if it is not but:
                it.let_go()
        gc.collect()
        if self._torch.cuda.is_initialized():
            self._torch.cuda.empty_cache()

    def _ran_out(self, error):
        return isinstance(error, self._torch.OutOfMemoryError) or any(it in str(error) for it in _LIKE_RUNNING_OUT)

    def optimizer_failed(self, error):
        """An optimizer's step raised."""
        if self._ran_out(error):
            self._write(refused="the optimizer's step may be half applied", error=error, phase="optimizer")

    def _write(self, error=None, **fields):
        place = frames.user_frame(frames.stack(sys._getframe(1)))
        asked = _ASKED.search(str(error))
        self._recording.write("redone", step=self._step_of(), user_frame=place, asked=asked.group(1) if asked else "", **fields)


def _marks(calls):
    """Of every parameter whose gradient is to come: which one it has."""
    leaves = {id(it): it for call in calls for it in call.leaves()}
    return {key: (it, it.grad, None if it.grad is None else it.grad._version) for key, it in leaves.items()}


class _Left:
    """Which parameters have not got their gradient since `before`."""

    def __init__(self, before, ids=None):
        self._before = before
        if ids is None:
            ids = {key for key, (it, grad, version) in before.items() if _is_same(it, grad, version)}
        self._ids = ids

    def has(self, parameter):
        if id(parameter) not in self._before:
            raise CannotRedo("a gradient goes to a parameter that is in none of its models")
        return id(parameter) in self._ids

    def as_they_are(self):
        """The same, to be asked later which of them got a gradient from now on."""
        now = {key: (it, it.grad, None if it.grad is None else it.grad._version) for key, (it, _, _) in self._before.items()}
        return _Left(now, self._ids)

    def of_these(self):
        """Those of them that have still not got one."""
        return _Left(self._before, {key for key in self._ids if _is_same(*self._before[key])})


def _is_same(parameter, gradient, version):
    return parameter.grad is gradient and (gradient is None or gradient._version == version)


def _without_frames(error):
    """The same error; what it ran through is let go of, and with it the tensors there."""
    seen = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen.__traceback__ = None
        seen = seen.__context__
    return error
