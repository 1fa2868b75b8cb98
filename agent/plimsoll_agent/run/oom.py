"""Records where memory ran out.

The allocator calls an observer before it raises, so the place is exact and the stack complete. The
message exists only in the exception. So the line is held back for a moment, until the exception
passes one of our hooks, the program goes on, or it ends.

Not every refusal becomes an exception of the program: PyTorch's convolutions try cuDNN's algorithms one
after the other, and one whose workspace does not fit is passed over in C++. Such a program runs on a
card that is nearly full, only with another algorithm. It is told apart by the exception's own
constructor: nobody in Python was given one.
"""

from __future__ import annotations

import ast
import dis
import os
import sys
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run import ahead, chain, extent, frames, operands, written
from plimsoll_agent.run.guard import guarded
from plimsoll_agent.run.phases import EVALUATION, FORWARD, OPTIMIZER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from plimsoll_agent.kinds import Frame, Named, Torch
    from plimsoll_agent.run.memory import Memory
    from plimsoll_agent.run.phases import Phases
    from plimsoll_agent.run.recording import Recording
    from plimsoll_agent.run.tensors import Tensors

_MODULE = os.path.join("torch", "nn", "modules", "module.py")
_AUTOGRAD = os.path.join("torch", "autograd", "__init__.py")

_GO_BACK = {"backward", "manual_backward", "grad", "vjp", "jacobian"}
"""Names of what goes back through a graph: `loss.backward()`, `torch.autograd.grad(...)`, `x.grad`."""

_DETACHES = frozenset(("item", "tolist", "numpy", "detach", "argmax"))
"""What comes out of these has no graph."""

MOST_NAMED = 4
"""A program that searches its batch size runs out often; what lives where is said for the first few."""


class OutOfMemory:
    """What is known about each time memory ran out."""

    def __init__(self, torch: Torch, memory: Memory, recording: Recording, phases: Phases, tensors: Tensors) -> None:
        self._torch = torch
        self._memory = memory
        self._recording = recording
        self._phases = phases
        self._tensors = tensors
        self._held_back: Named | None = None
        self._was_raised = False
        self._sees_raising = True
        self._times = 0
        self._first: Named | None = None  # What ran out, while it is being done again.
        self._later: list[Named] = []  # What ran out meanwhile.
        self.was_raised: Callable[[], object] | None = None
        """Called when the program gets such an error."""

    @property
    def is_recent(self) -> bool:
        """Whether memory ran out and the program has made no step since, nor run out again."""
        return self._held_back is not None or self._first is not None

    def behind(self, error: BaseException | None) -> BaseException | None:
        """The error of a device without memory that an exception is. Or came from, if the program has made no step since: one that trains on
        where it handles such an error has all that it raises later come from it."""
        kind = self._torch.OutOfMemoryError
        if isinstance(error, kind):
            return error
        return next((it for it in chain.of(error) if isinstance(it, kind)), None) if self.is_recent else None

    @property
    def goes_back(self) -> bool:
        """Whether memory ran out last in a pass that a backward pass was to follow."""
        return self._held_back is not None and bool(self._held_back["goes_back"])

    def observe(self) -> None:
        """Asks the allocator to tell us. Needs CUDA to be initialised."""
        self._torch._C._cuda_attach_out_of_memory_observer(self._ran_out)
        self._notice_raising()

    def _notice_raising(self) -> None:
        kind = self._torch.OutOfMemoryError
        make = kind.__init__
        if patch.is_ours(make):
            return

        def __init__(error: BaseException, *args: Any, **kwargs: Any) -> None:
            make(error, *args, **kwargs)
            self._raised(error)

        try:
            patch.put(kind, "__init__", __init__)
        except TypeError:
            self._sees_raising = False

    @guarded
    def _raised(self, error: BaseException) -> None:
        if self._held_back is not None:
            self._was_raised = True
            self._held_back["message"] = str(error)
            if self.was_raised is not None:
                self.was_raised()

    @guarded
    def _ran_out(self, device: int, requested: int, total: int, free: int) -> None:
        self.go_on()
        self._was_raised = not self._sees_raising
        frame: FrameType | None = sys._getframe(1)
        stack = frames.stack(frame)
        if not stack and self._phases.thread is not None:
            # The autograd engine has no Python stack; who called `backward` has.
            frame = sys._current_frames().get(self._phases.thread)
            stack = frames.stack(frame)
        # A backward pass that runs is the one that was to come, but for the derivatives that a loss is made of.
        is_the_last = any(it["function"] == "backward" for it in stack if it["file"].endswith(_AUTOGRAD))
        goes_back = self._tensors.input_wants_gradient or not is_the_last and _goes_back(frame)
        self._held_back = dict(
            device=device,
            step=self._phases.step,
            phase=self._phase(stack),
            requested=requested,
            message=None,
            stack=stack,
            user_frame=frames.user_frame(stack),
            caught=None,
            goes_back=goes_back,
            loop=_outermost_loop(frame),
            written=written.lines() if self._times < MOST_NAMED else None,
            operands=operands.of_line(self._torch, frame) if self._times < MOST_NAMED else None,
            gpu=self._memory.name(device),
            device_total=total,
            device_free=free,
            **self._memory.place().where()
        )
        self._times += 1
        if self._times <= MOST_NAMED:
            self._tensors.all()

    def _phase(self, stack: list[Frame]) -> str | None:
        phase = self._phases.current
        # Calls of modules are not watched in each step, and never those that are compiled; the stack shows them.
        if phase in (None, OPTIMIZER) and any(
            it["function"] == "_call_impl" and it["file"].endswith(_MODULE) for it in stack
        ):
            phase = FORWARD if self._torch.is_grad_enabled() else EVALUATION
        return phase

    @guarded
    def passed_by(self, error: BaseException) -> None:
        """An exception went through one of our hooks; perhaps it is this one."""
        if self._held_back is not None and isinstance(error, self._torch.OutOfMemoryError):
            self._held_back["message"] = str(error)

    @guarded
    def is_done_again(self) -> None:
        """What ran out last is tried in other ways from now on, until `was_done_again` or `was_refused`."""
        if self._first is None:
            self._first, self._held_back = self._held_back, None

    @guarded
    def was_done_again(self) -> None:
        """The program goes on."""
        self.go_on()
        first, self._first = self._first, None
        later, self._later = self._later, []
        for line in [first] + later:
            if line is not None:
                self._recording.write("oom", **dict(line, caught=True))

    @guarded
    def was_refused(self) -> None:
        """No attempt succeeded: the program gets the first error, and this is the one to report."""
        self.go_on()
        first, self._first = self._first, None
        later, self._later = self._later, []
        for line in later:
            self._recording.write("oom", **line)
        if first is not None:
            self._held_back, self._was_raised = first, True

    @guarded
    def go_on(self) -> None:
        """The program does something else: it caught the exception, if there was one."""
        if self._held_back is not None:
            self._write(caught=True)

    @guarded
    def ended(self, ran_out: BaseException | None) -> None:
        """The program is over; `ran_out` is what is behind the error that ended it."""
        if self._first is not None:
            self.was_refused()
        if self._held_back is None:
            return
        if ran_out is not None:
            self._held_back["message"] = str(ran_out)
        self._write(caught=ran_out is None)

    def _write(self, caught: bool) -> None:
        line, self._held_back = self._held_back, None
        if line is None:
            return
        if caught and not self._was_raised:
            self._recording.note(
                "algorithm-refused",
                "at times too little memory was free for the workspace of cuDNN's first choice, and PyTorch took "
                "another algorithm: the script fits, but may be slower",
            )
            return
        line["caught"] = caught
        if self._first is not None:
            self._later.append(line)
            return
        self._recording.write("oom", **line)

    def forget(self) -> None:
        """In a forked child."""
        self._held_back = self._first = None
        self._later = []


def _outermost_loop(frame: FrameType | None) -> Named | None:
    """The loop of the script's around all that runs: the file with its first and its last line."""
    found = None
    for it in _outwards(frame):
        code = it.f_code
        if frames.is_users(code.co_filename) and code.co_name not in extent.COMPREHENSIONS:
            first = 0 if code.co_name == "<module>" else code.co_firstlineno
            around = [loop for loop in extent.loops_in(code.co_filename) if first <= loop.lineno <= it.f_lineno <= (loop.end_lineno or loop.lineno)]
            if around:
                outermost = min(around, key=lambda loop: loop.lineno)
                found = {"file": code.co_filename, "line": outermost.lineno, "last": outermost.end_lineno or outermost.lineno}
    return found


def _goes_back(frame: FrameType | None) -> bool:
    """Whether a function that is running has a call of a backward pass still before it, and what it computes may come to that; PyTorch's own
    modules do not count."""
    running = frame
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.endswith(_MODULE) and _GO_BACK.intersection(code.co_names):
            rest = (it for it in dis.get_instructions(code) if it.offset > frame.f_lasti)
            if any(it.argval in _GO_BACK for it in rest if isinstance(it.argval, str)):
                return not _becomes_a_number(running)
        frame = frame.f_back
    return False


def _becomes_a_number(frame: FrameType | None) -> bool:
    """Whether the statement that runs keeps nothing with a graph: `total += loss_of(net(x)).item()`, or `loss = ...` and then `loss.item()` only."""
    # The caller of the model, not its modules.
    stack = list(_outwards(frame))
    outermost = max((i for i, it in enumerate(stack) if it.f_code.co_filename.endswith(_MODULE)), default=-1)
    frame = next((it for it in stack[outermost + 1 :] if frames.is_users(it.f_code.co_filename)), None)
    if frame is None:
        return False
    function = ahead.function_at(frame.f_code.co_filename, frame.f_lineno)
    around = (it for it in ast.walk(function) if isinstance(it, extent.STATEMENTS) and it.lineno <= frame.f_lineno <= (it.end_lineno or it.lineno))
    statement = min(around, key=lambda it: (it.end_lineno or it.lineno) - it.lineno, default=None)
    if statement is None or statement.value is None:
        return False
    if _is_detached(statement.value):
        return True
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    names = {it.id for it in targets if isinstance(it, ast.Name)}
    if not names or len(names) != len(targets) or isinstance(statement, ast.AugAssign):
        return False
    used = [it for it in ast.walk(function) if isinstance(it, ast.Name) and it.id in names and isinstance(it.ctx, ast.Load)]
    calls = (it for it in ast.walk(function) if isinstance(it, ast.Call) and isinstance(it.func, ast.Attribute) and it.func.attr in _DETACHES)
    detached = {id(name) for call in calls for name in ast.walk(call.func) if isinstance(name, ast.Name)}
    return bool(used) and all(id(it) in detached for it in used)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_detached(value: ast.expr) -> bool:
    """Whether what comes out is a number, or has no graph: a chain of calls with one that takes it off, or a sum in which no other call is."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr in _DETACHES:
            return True
        value = value.func.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in ("float", "int"):
        return True
    sides = [value.left, value.right] if isinstance(value, ast.BinOp) else []
    with_calls = [side for side in sides if any(isinstance(it, ast.Call) for it in ast.walk(side))]
    return bool(with_calls) and all(_is_detached(side) for side in with_calls)
