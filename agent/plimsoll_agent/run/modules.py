"""Which module is running: every allocation made inside one carries its path.

`nn.Module.__call__` is wrapped rather than hooked. PyTorch's global hooks would send each call down a
slower path with one more frame in every stack and traceback; the wrapper takes itself out of a
traceback again. The path goes to the allocator as the thread's metadata, which PyTorch stores with
each event: `m=transformer.h.3.mlp`, empty outside any module.

Nothing here runs under torch.compile: see `step_aside`.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run import frames, idle_checkpoints, nested
from plimsoll_agent.run.gradients import Gradients
from plimsoll_agent.run.guard import failed, guarded
from plimsoll_agent.run.phases import EVALUATION, FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from plimsoll_agent.kinds import Arguments, Follower, Module, Named, Note, Torch
    from plimsoll_agent.run.oom import OutOfMemory
    from plimsoll_agent.run.owners import Owners
    from plimsoll_agent.run.phases import Phases
    from plimsoll_agent.run.stopping import Stopping

_CHECKPOINT = os.path.join("torch", "utils", "checkpoint.py")
_NESTED = 3
"""So many blocks of autocast lie in each other at most, where each is left."""


class _Thread(threading.local):
    """Where this thread is."""

    path = ""
    depth = 0

    def __init__(self, follower: Callable[[], Follower]) -> None:
        self.follower = follower()


class Modules:
    """Wraps every module's call while it is installed. `follower()` gives what is told of each call on a thread: it has
    `enter(module, depth)` and `leave(depth)`."""

    def __init__(
        self, torch: Torch, owners: Owners, phases: Phases, steps: Any, stopping: Stopping, tensors: Any, oom: OutOfMemory, is_live: Callable[[], bool], follower: Callable[[], Follower],
        note: Note,
    ) -> None:
        self._torch = torch
        self._note = note
        # Before PyTorch 2.11 an allocation cannot carry the module that made it; its stack names the lines.
        self._set_metadata = getattr(torch._C, "_cuda_setMemoryMetadata", lambda path: None)
        self._owners = owners
        self._phases = phases
        self._steps = steps
        self._stopping = stopping
        self._tensors = tensors
        self._oom = oom
        self._is_live = is_live
        self._thread = _Thread(follower)
        self._gradients = Gradients(torch)
        self._ours: patch.Replacement | None = None
        self._stepped_aside, self._watching = False, True
        self._most_autocasts = self._more_autocasts = 0
        self._checkpoints_in_vain = False
        """The forward pass that is under way, or was last, trains in evaluation mode with checkpointing on, and checkpointed nothing so far."""
        self._in_order: weakref.WeakSet[Module] = weakref.WeakSet()
        """Models in training mode whose parts that are to checkpoint are, too: they are not looked through at each call."""
        self.given: int | None = None
        """Bytes of the tensors that top-level calls with gradients were given, if anybody counts them."""
        self.call_ended: Callable[[], object] | None = None
        self.around_call: Callable[[Module], Callable[[], object] | None] | None = None

    def install(self) -> None:
        """From now on the agent sees every call of a module, unless it has stepped aside."""
        from torch.nn.modules import module

        module.register_module_module_registration_hook(guarded(self._registered))
        original = self._torch.nn.Module.__call__
        is_live, thread = self._is_live, self._thread
        enter, leave, stop = self._enter, self._leave, self._stop
        around = self.around_call or (lambda module: None)

        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not is_live():
                return original(self, *args, **kwargs)
            after = None
            if thread.depth == 0:
                stop()
                after = around(self)
            before = enter(self, args, kwargs)
            try:
                result = original(self, *args, **kwargs)
            except BaseException as error:
                leave(before, error)
                frames.hide_ours(error)
                raise
            finally:
                if after is not None:
                    after()
            leave(before, None)
            return result

        self._ours = patch.put(self._torch.nn.Module, "__call__", __call__)
        if not self._watching:
            self._ours.undo()
        self._watch_replays()

    def _watch_replays(self) -> None:
        """A CUDA graph that is replayed without gradients is a forward pass: no module is called for it."""
        original, is_live = self._torch.cuda.CUDAGraph.replay, self._is_live

        def replay(self_: Any) -> Any:
            if not is_live() or not self.is_watching or self._thread.depth != 0:
                return original(self_)
            self._stop()
            phase = self._replay_begins()
            result = original(self_)
            self._replay_ended(phase)
            return result

        patch.put(self._torch.cuda.CUDAGraph, "replay", replay)

    @guarded
    def _replay_begins(self) -> str | None:
        return EVALUATION if not self._torch.is_grad_enabled() and self._phases.begin(EVALUATION) else None

    @guarded
    def _replay_ended(self, phase: str | None) -> None:
        if phase is not None:
            self._phases.end(phase)
            self._steps.forward_ended()

    @guarded
    def backward_begins(self) -> None:
        """The pass before it was training, whatever mode its model was in."""
        self._note_idle_checkpoints()

    def _note_idle_checkpoints(self) -> None:
        if self._checkpoints_in_vain:
            self._checkpoints_in_vain = False
            self._note(
                "checkpointing-no-effect",
                "activation checkpointing is on, but has no effect: the model trains in evaluation mode",
            )

    def _note_open_autocasts(self) -> None:
        # PyTorch tells the depth only to who enters; so one is entered, and exited at once.
        around = self._torch.autocast_increment_nesting() - 1
        self._torch.autocast_decrement_nesting()
        if self._most_autocasts < around:
            self._most_autocasts = around
            self._more_autocasts += 1
            if self._more_autocasts == _NESTED + 1:
                self._note("autocast-open", "the script enters `torch.autocast` in each pass and never exits it, so PyTorch stores every copy that it casts")

    def watch_modes(self, changed: Callable[[], object]) -> None:
        """`changed()` is called when a module goes from training to evaluation or back."""
        train, changed = self._torch.nn.Module.train, guarded(changed)

        def watched(self: Any, mode: bool = True) -> Any:
            if self.training != mode:
                changed()
            return train(self, mode)

        patch.put(self._torch.nn.Module, "train", watched)

    def watch(self, watching: bool) -> None:
        """Sees every call of a module, or none: then a call costs what it costs in PyTorch. Before `install`: from then on."""
        self._watching = watching
        if self._ours is not None and not self._stepped_aside:
            self._ours.redo() if watching else self._ours.undo()

    def step_aside(self) -> None:
        """Restores PyTorch's own call: torch.compile traces through it and must not trace the agent."""
        if not self._stepped_aside:
            self._stepped_aside = True
            if self._ours is not None:
                self._ours.undo()

    @property
    def is_watching(self) -> bool:
        """Whether calls of modules are seen now."""
        return self._watching and not self._stepped_aside and self._ours is not None

    @property
    def has_stepped_aside(self) -> bool:
        """Whether calls of modules are not seen any more."""
        return self._stepped_aside

    @guarded
    def _registered(self, parent: Module, name: str, child: Module | None) -> None:
        if not self._torch.compiler.is_compiling():  # Dynamo traces through here, where a program compiles that builds modules.
            self._owners.registered(parent, name, child)

    @guarded
    def _stop(self) -> None:
        self._stopping.here(self._phases.thread)

    def _enter(self, module: Module, args: Arguments, kwargs: Named) -> tuple[str, str | None]:
        """Returns what `_leave` needs: the path outside, and the phase that began here."""
        thread = self._thread
        outside, phase = thread.path, None
        thread.depth += 1
        try:
            thread.path = "m=" + self._owners.path(module)
            self._set_metadata(thread.path)
            if thread.depth == 1:
                self._note_open_autocasts()
                self._owners.calls(module)
                phase = self._top_level(module, args, kwargs)
            elif self._checkpoints_in_vain and _is_in_checkpoint(sys._getframe(1)):
                self._checkpoints_in_vain = False  # Layers of some libraries checkpoint in either mode.
            thread.follower.enter(module, thread.depth)
        except Exception as error:
            failed("modules.enter", error)
        return outside, phase

    def _top_level(self, module: Module, args: Arguments, kwargs: Named) -> str | None:
        # One without parameters, in training mode, prepares a batch or is a loss.
        prepares = module.training and self._torch.is_grad_enabled()
        phase = FORWARD if prepares or self._gradients.are_wanted(module, (args, kwargs)) else EVALUATION
        # A loss has no mode, and neither has a frozen model that gradients go through.
        has_mode = phase == FORWARD and self._gradients.is_trainable(module)
        self._checkpoints_in_vain = has_mode and self._has_idle_checkpoints(module)
        mode = ("training" if module.training else "evaluation") if has_mode else None
        if not self._phases.begin(phase, mode):
            return None
        self._tensors.inputs(module, phase == FORWARD, args, kwargs)
        if self.given is not None and phase == FORWARD:
            self.given += sum(it.numel() * it.element_size() for it in nested.tensors_in(self._torch, (args, kwargs)))
        return phase

    def _has_idle_checkpoints(self, module: Module) -> bool:
        """Whether a part of it that is to checkpoint is in evaluation mode: PEFT's wrapper is in training mode around a model that is not."""
        if module.training and module in self._in_order:
            return False
        idle = (it for it in module.modules() if idle_checkpoints.is_idle(it))
        # One that is frozen stores nothing for itself.
        res = any(not module.training or self._gradients.is_trainable(it) for it in idle)
        if module.training and not res:
            self._in_order.add(module)
        return res

    def _leave(self, before: tuple[str, str | None], error: BaseException | None) -> None:
        thread = self._thread
        outside, phase = before
        depth = thread.depth
        thread.depth -= 1
        thread.path = outside
        try:
            thread.follower.leave(depth)
            self._set_metadata(outside)
            if error is not None:
                self._oom.passed_by(error)
                if depth == 1 and self._oom.goes_back:
                    self._note_idle_checkpoints()
            if phase is not None:
                self._phases.end(phase)
                if error is None:
                    self._steps.forward_ended()
            if depth == 1 and self.call_ended is not None:
                self.call_ended()
        except Exception as problem:
            failed("modules.leave", problem)


def _is_in_checkpoint(frame: FrameType | None) -> bool:
    """Whether `torch.utils.checkpoint` is among the callers."""
    while frame is not None:
        if frame.f_code.co_filename.endswith(_CHECKPOINT):
            return True
        frame = frame.f_back
    return False
