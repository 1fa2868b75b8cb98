"""Where in the user's files the things are that a person would change: for a diff of their script.

On in the first run of `plimsoll fit` (`PLIMSOLL_SITES`), where nothing is changed. Each place is found while the program
runs, by the line that made the call, and then looked up in the file's syntax, so that it is a place and not a guess:
a line with two such calls, or a call whose file cannot be read, is left out. Positions are lines from 1 and bytes from 0.
"""

from __future__ import annotations

import ast
import sys
import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch, source
from plimsoll_agent.run import frames, nested
from plimsoll_agent.run.guard import guarded
from plimsoll_agent.survey.frameworks import Frameworks, span_of
from plimsoll_agent.survey.idle import Idle

if TYPE_CHECKING:
    from types import FrameType

    from plimsoll_agent.kinds import Arguments, Function, Module, Named, Optimizer, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks
    from plimsoll_agent.run.recording import Recording


def apply(torch: Torch, hooks: Hooks, recording: Recording) -> Any:
    sites = Sites(torch, recording)
    optimizer_class = torch.optim.Optimizer
    make, zero_grad = optimizer_class.__init__, optimizer_class.zero_grad

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        sites.idle.made(self)
        sites.optimizer_made(self)

    def zeroed(self: Any, *args: Any, **kwargs: Any) -> Any:
        sites.saw("zero_grad", "zero_grad")
        return zero_grad(self, *args, **kwargs)

    patch.put(optimizer_class, "__init__", __init__)
    patch.put(optimizer_class, "zero_grad", zeroed)

    def around_call(module: Module, call: Any, args: Arguments, kwargs: Named) -> Any:
        if not sites.is_looking:
            return call(*args, **kwargs)
        if not hooks.is_training(module):
            sites.idle.called_without_training(module)
            return call(*args, **kwargs)
        sites.keeps_graphs = True
        result = sites.idle.called(module, call, args, kwargs)
        sites.called(module, result)
        return result

    def around_backward(run: Function, tensors: Any, grad_tensors: Any) -> Any:
        sites.trains = True
        sites.frameworks.backward()
        sites.saw("backward", "backward")
        return run(tensors, grad_tensors)

    compile = torch.compile

    def compiled(*args: Any, **kwargs: Any) -> Any:
        # Where models are called is then not known, and what is known without it is still said.
        hooks.step_aside()
        sites.idle.compiled()
        return compile(*args, **kwargs)

    patch.put(torch, "compile", compiled)
    hooks.around_call(around_call)
    hooks.around_backward(around_backward)
    from torch.nn.parallel import DistributedDataParallel
    from torch.optim import optimizer

    wrap = DistributedDataParallel.__init__

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        wrap(self, *args, **kwargs)
        sites.saw("distributed", "DistributedDataParallel")

    patch.put(DistributedDataParallel, "__init__", wrapped)

    def before_step(*_: Any) -> None:
        sites.saw("step", "step")

    optimizer.register_optimizer_step_pre_hook(before_step)
    optimizer.register_optimizer_step_post_hook(lambda *_: sites.stepped())
    sites.idle.install()
    sites.frameworks.install(torch)
    return sites.at_end


class Sites:
    """What was seen, until the second step is over."""

    def __init__(self, torch: Torch, recording: Recording) -> None:
        self._torch = torch
        self._recording: Recording | None = recording
        self._seen: dict[Any, Any] = {}
        self._steps = 0
        self._root = None
        self._beside: list[weakref.ref[Module]] = []
        """Further models that train."""
        self.trains = self.keeps_graphs = False
        self.idle = Idle(torch)
        self.frameworks = Frameworks()
        self._files: set[str] = set()

    @property
    def is_looking(self) -> bool:
        """Until everything was written."""
        return self._recording is not None

    @guarded
    def saw(self, what: str, name: str | None, **more: Any) -> Any:
        """A call of something called `name`, by the line of the user's that is running."""
        if self._steps > 1 or self._recording is None:
            return None
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not frames.is_users(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            return None
        key = (what, frame.f_code.co_filename, frame.f_lineno)
        seen = self._seen.setdefault(key, dict(more, name=name, span=span_of(frame)))
        if seen["span"] != span_of(frame):
            seen["is_several"] = True
        return frame

    @guarded
    def optimizer_made(self, optimizer: Optimizer) -> None:
        """With the expression of the model whose parameters it has, if it says `model.parameters()`; else with the models
        that have a name there, of which the one that is called may be one."""
        name = type(optimizer).__name__
        frame = self.saw("optimizer", name)
        if frame is None:
            return
        site = self._seen["optimizer", frame.f_code.co_filename, frame.f_lineno]
        call = self._call(frame.f_code.co_filename, frame.f_lineno, name, site["span"])
        site["named"] = [(name, weakref.ref(it)) for name, it in _named(frame) if isinstance(it, self._torch.nn.Module)]
        first = call.args[0] if call is not None and call.args else None
        if isinstance(first, ast.Call) and isinstance(first.func, ast.Attribute) and first.func.attr == "parameters":
            text = _dotted(first.func.value)
            model = _value(frame, text) if text else None
            if isinstance(model, self._torch.nn.Module):
                site.update(model=text, root=model)

    def called(self, module: Module, result: Any) -> None:
        """An outermost call of a model, with gradients. In evaluation mode it is an evaluation until backward comes."""
        frame = self.saw("call" if module.training else "evaluation", None)
        if frame is None:
            return
        file, line = frame.f_code.co_filename, frame.f_lineno
        if module.training:
            self._trains(module)
            return

        def is_training(gradient: Tensor) -> None:
            if self._seen.pop(("evaluation", file, line), None) is not None:
                self._seen["call", file, line] = {"name": None, "span": None}
                self._trains(module)

        for it in nested.tensors_in(self._torch, result):
            if it.requires_grad:
                it.register_hook(is_training)

    def _trains(self, module: Module) -> None:
        if self._root is None:
            self._root = module
        elif module is not self._root and not any(it() is module for it in self._beside):
            self._beside.append(weakref.ref(module))

    @guarded
    def stepped(self) -> None:
        """At the end of the second step everything is looked up and written; at the program's where it has no optimizer."""
        self._steps += 1
        if self._steps == 2:
            self._write()

    def _write(self) -> None:
        if self._recording is None:
            return
        try:
            found = [it for it in (self._site(key, seen) for key, seen in self._seen.items()) if it is not None]
            found += self._clips()
            switches, missing = self.frameworks.found(self._place), self.frameworks.missing()
            idle = self.idle.found(self._root)
            self._recording.write("sites", sites=found, files=self._described(), idle=idle, switches=switches, missing=missing)
        except Exception as error:  # Without it there is no diff, and nothing else is lost.
            self._recording.note("sites", "plimsoll could not find the lines for a change: %r" % (error,))
        self.idle.leave()
        self._recording = self._root = None
        self._seen.clear()

    def at_end(self) -> None:
        """The program ends. Without a backward pass there is no second step, and less to look for."""
        if self._recording is None or not self._recording.is_open:
            return
        if not self._torch.cuda.is_initialized():
            return  # A process that the program started, such as those in which torch.compile has code compiled.
        if self.trains:
            self._write()
        else:
            idle = self.idle.found_without_training(self.keeps_graphs)
            switches = self.frameworks.found(self._place)
            self._recording.write("sites", sites=[], files={}, idle=idle, trains=False, switches=switches)
            self._recording = None

    def _site(self, key: Any, seen: Any) -> Any:
        what, file, line = key
        tree = self._tree(file)
        if seen["name"] is not None and seen.get("is_several"):
            return None  # Two calls of one name in one line: which is which, an edit does not know.
        statement = _statement(tree, line, seen["name"], seen["span"])
        if statement is None or what == "backward" and statement is not _statement(tree, line):
            return None  # What is done to the lines of a backward pass would be done to what follows it in its line.
        site = {"what": what, "file": file, "statement": _span(statement), "function": _function_of(tree, statement)}
        if seen["name"] is not None:
            call = self._call(file, line, seen["name"], seen["span"])
            if call is None:
                return None
            site["call"] = _described_call(call)
            site["name"] = seen["name"]
        named = [name for name, it in seen.get("named", ()) if self._root is not None and it() is self._root]
        if named and "model" not in seen:
            seen.update(model=named[0], root=self._root)
        if "model" in seen:
            site["model"] = seen["model"]
            if seen["root"] is self._root:
                site.update(_blocks(self._torch, self._root))
                site["beside"] = self._blocks_beside(seen.get("named", ()))
                if site["beside"] is None:
                    site["blocks"] = []  # A model without a name there has blocks, too.
                site["switch"] = _switch_of(self._root)
        if what == "backward":
            site["from"] = self._forward_part(tree, file, statement)
            site["batch"] = _batch_of(_body_of(tree, statement), statement) if site["from"] else None
        return site

    def _blocks_beside(self, named: Any) -> list[Named] | None:
        """The blocks of the other models that train, which a plan has run again as well; None if one of them has no name."""
        found = []
        for model in filter(None, (it() for it in self._beside)):
            blocks = _blocks(self._torch, model)
            name = next((name for name, it in named if it() is model), None)
            if blocks["blocks"] and name is None:
                return None
            if blocks["blocks"]:
                found.append(dict(blocks, model=name))
        return found

    def _place(self, file: str, line: Any, name: str, span: Any) -> Named | None:
        """The call of `name` with this span, else the only one in the statement at this line, as a site; None if that is not certain."""
        call = self._call(file, line, name, span)
        if call is None:
            return None
        statement = _statement(self._tree(file), line, name, span)
        span, function = _span(statement), _function_of(self._tree(file), statement)
        described = {"what": name or "call", "file": file, "statement": span, "function": function, "call": _described_call(call)}
        return dict(described, model=_dotted(call.func))

    def _clips(self) -> Any:
        """Where gradients are clipped, called or not: what is scaled has to be unscaled before."""
        found = []
        for file in sorted(self._files):
            tree = source.tree(file)
            for call in ast.walk(tree):
                if isinstance(call, ast.Call) and _last(call.func) in ("clip_grad_norm_", "clip_grad_value_"):
                    statement = _statement(tree, call.lineno, _last(call.func), _span(call))
                    if statement is not None:
                        site = {"what": "clip", "file": file, "statement": _span(statement), "call": _described_call(call)}
                        found.append(dict(site, function=_function_of(tree, statement)))
        return found

    def _forward_part(self, tree: Any, file: str, backward: Any) -> list[Any] | None:
        """The lines from the first call of a model to what comes before backward, where they are neighbours."""
        body = _body_of(tree, backward)
        first = len(body)
        at = body.index(backward)
        for what, other, line in self._seen:
            if what != "call":
                continue
            index = next((i for i, it in enumerate(body) if it.lineno <= line <= it.end_lineno), None)
            if other != file or index is None or index >= at:
                return None
            first = min(first, index)
        while first < at and _is_call_of(body[at - 1], "zero_grad"):
            at -= 1  # Many clear the gradients between loss and backward.
        if first >= at or any(_has_long_string(it) for it in body[first:at]):
            return None
        return [body[first].lineno, body[at - 1].end_lineno]

    def _call(self, file: str, line: Any, name: str, span: Any = None) -> Any:
        """The call of `name` in the statement at this line, the one with this span if there are several; None if it is not certain."""
        statement = _statement(self._tree(file), line, name, span)
        if statement is None:
            return None
        calls = [it for it in ast.walk(statement) if isinstance(it, ast.Call) and name in (None, _last(it.func))]
        if len(calls) > 1 or name is None:
            calls = [it for it in calls if _span(it) == span]
        return calls[0] if len(calls) == 1 else None

    def _tree(self, file: str) -> ast.Module:
        self._files.add(file)
        return source.tree(file)

    def _described(self) -> Any:
        """For each file: where its imports end, and whether `torch` is a name in it."""
        found = {}
        for file in sorted(self._files):
            tree = source.tree(file)
            if not tree.body:
                continue
            imports = [it for it in tree.body if isinstance(it, (ast.Import, ast.ImportFrom))]
            torch = [
                it.end_lineno or it.lineno
                for it in imports
                if isinstance(it, ast.Import) and any(a.name == "torch" and a.asname is None for a in it.names)
            ]
            # `import torch.nn` gives the name as well, a later import not before its line.
            more: list[int] = [
                it.end_lineno or it.lineno
                for it in imports
                if isinstance(it, ast.Import) and any(a.name.startswith("torch.") and a.asname is None for a in it.names)
            ]
            found[file] = {"torch": min(torch + more, default=None)}
        return found


def _statement(tree: Any, line: Any, name: str | None = None, span: Any = None) -> Any:
    """The innermost statement that this line is in; a compound one only where its head is. Of several in one line the one with the call
    of `name`, the one with this span if there are several; else the last."""
    around = [it for it in ast.walk(tree) if isinstance(it, ast.stmt) and it.lineno <= line <= it.end_lineno]
    innermost = [it for it in around if it.lineno == max(it.lineno for it in around) and not hasattr(it, "body")]
    calling = [it for it in innermost if name is not None and _calls(it, name)]
    if 1 < len(calling):
        calling = [it for it in calling if any(_span(call) == span for call in _calls(it, name))]
        return calling[0] if len(calling) == 1 else None
    if calling:
        return calling[0]
    best = max(around, key=lambda it: (it.lineno, it.col_offset), default=None)
    return None if best is None or hasattr(best, "body") else best


def _calls(statement: Any, name: str | None) -> list[Any]:
    return [it for it in ast.walk(statement) if isinstance(it, ast.Call) and _last(it.func) == name]


def _body_of(tree: Any, statement: Any) -> Any:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and statement in body:
                return body
    return [statement]


def _batch_of(body: Any, backward: Any) -> Named | None:
    """The batch of `loss = model(**batch).loss; loss.backward()`, also under a `with`: its name, where it stands in the call, and the loss's
    name. None of any other form: what is done for each part of a batch is certain for this one only."""
    at = body.index(backward)
    forward = body[at - 1] if at else None
    if isinstance(forward, ast.With) and len(forward.body) == 1:
        forward = forward.body[0]
    if not isinstance(forward, ast.Assign) or not isinstance(forward.value, ast.Attribute) or forward.value.attr != "loss":
        return None
    call = forward.value.value
    if not isinstance(call, ast.Call) or call.args or len(call.keywords) != 1 or call.keywords[0].arg is not None:
        return None
    batch, target = call.keywords[0].value, forward.targets[0]
    if not isinstance(batch, ast.Name) or not isinstance(target, ast.Name) or len(forward.targets) != 1:
        return None
    is_plain = isinstance(backward, ast.Expr) and ast.unparse(backward.value) == target.id + ".backward()"
    return {"name": batch.id, "at": _span(batch), "loss": target.id} if is_plain else None


def _function_of(tree: Any, statement: Any) -> Any:
    """The line of the innermost function around it, 0 for the module."""
    lines = [
        it.lineno
        for it in ast.walk(tree)
        if isinstance(it, (ast.FunctionDef, ast.AsyncFunctionDef)) and it.lineno <= statement.lineno <= it.end_lineno
    ]
    return max(lines, default=0)


def _described_call(call: Any) -> Named:
    values = call.args + [it.value for it in call.keywords]
    plain = not any(isinstance(it, (ast.Starred, ast.GeneratorExp)) for it in call.args)
    last = max(values, key=lambda it: (it.end_lineno, it.end_col_offset), default=None)
    keywords = {it.arg: _span(it.value) for it in call.keywords if it.arg is not None}
    return {
        "span": _span(call),
        "callee": _span(call.func),
        "owner": _span(call.func.value) if isinstance(call.func, ast.Attribute) else None,
        "arguments": [_span(it) for it in call.args],
        "keywords": keywords,
        "end": [last.end_lineno, last.end_col_offset] if last is not None else None,
        "plain": plain and all(it.arg is not None for it in call.keywords),
    }


def _blocks(torch: Torch, root: Module) -> Named:
    from plimsoll_agent.remedies.support.blocks import blocks_of

    cache = any(getattr(getattr(it, "config", None), "use_cache", False) is True for it in root.modules())
    return {"blocks": [name for name, _ in blocks_of(torch, root)], "cache": cache and hasattr(root, "config")}


def _switch_of(root: Module) -> Any:
    """The method by which a model of a library has its own blocks run again in backward; None if it does already, or cannot."""
    on = getattr(root, "is_gradient_checkpointing", False)
    if getattr(root, "supports_gradient_checkpointing", getattr(root, "_supports_gradient_checkpointing", False)) and not on:
        return next((it for it in ("gradient_checkpointing_enable", "enable_gradient_checkpointing") if hasattr(root, it)), None)
    return None


def _span(node: Any) -> list[Any]:
    return [node.lineno, node.col_offset, node.end_lineno, node.end_col_offset]


def _last(function: Any) -> Any:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)


def _dotted(node: Any) -> Any:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return before and before + "." + node.attr
    return None


def _named(frame: FrameType) -> Any:
    """What has a name where this frame is, or is an attribute of its `self`."""
    known = frames.variables(frame)
    found, owner = list(known.items()), known.get("self")
    parts = dict(getattr(owner, "__dict__", {}))
    parts.update(parts.get("_modules") or {})
    return found + [("self." + name, it) for name, it in parts.items() if name.isidentifier()]


def _value(frame: FrameType, text: str) -> Any:
    first, *rest = text.split(".")
    value = frames.variables(frame).get(first, frame.f_globals.get(first))
    for name in rest:
        value = getattr(value, name, None)
    return value


def _is_call_of(statement: Any, name: str) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and _last(statement.value.func) == name


def _has_long_string(node: Any) -> bool:
    """A string over several lines would change if its lines were indented."""
    return any(
        isinstance(it, (ast.Constant, ast.JoinedStr)) and it.lineno != it.end_lineno
        for it in ast.walk(node)
        if isinstance(it, ast.JoinedStr) or isinstance(getattr(it, "value", None), (str, bytes))
    )
