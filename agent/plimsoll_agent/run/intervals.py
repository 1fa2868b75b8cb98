"""An evaluation every so many steps: finds it in the text of the loops around a step, and has it come soon.

`if step % args.eval_every == 0: evaluate()` comes after as many steps as the script's own setting says. Where that is a variable, it is 1
for a few steps, and then again what it was: the counter of the steps, and all else, is the script's. Where it is a number in the text, or the
loop computes with the variable, the run goes on to there, if that is not too far.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import linecache
import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent import source
from plimsoll_agent.run import extent, frames
from plimsoll_agent.run.guard import guarded
from plimsoll_agent.run.hints import EVALUATION

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    from plimsoll_agent.kinds import Line

_AROUND = (ast.For, ast.AsyncFor, ast.While, ast.If)

MOST_LINES = 200
"""Of a branch that are read."""

PUTS = {"append", "appendleft", "extend", "insert", "add", "update", "put", "put_nowait", "push", "setdefault", "record", "log", "store", "collect", "forward"}
"""Methods that put what they are given into what they are called on."""

_TO_THE_HOST = {"item", "tolist", "cpu", "numpy", "float", "int", "str", "len", "round"}

MOST_LOOPS = 1_000_000
"""A setting above that is no interval."""


class Interval:
    """One such branch, around which the step stands in a loop."""

    def __init__(
        self, frame: FrameType, branch: _Branch, remainder: ast.BinOp, began: int | None, length: int, to_come: int | None, is_of_epochs: bool
    ) -> None:
        counter, every = remainder.left, remainder.right
        self._code, self._frame, self._every = frame.f_code, id(frame), every
        self._counter, self._began = counter, began
        self._length = length
        self._can_be_short = branch.comes_if_one(every, frame.f_lineno)
        self.has_conditions = branch.has_conditions
        """Whether its branch waits for something else, too."""
        self.to_come = to_come
        """Turns of its loop until then, if that is known and each is a step."""
        self.epochs_to_come = length - began % length if is_of_epochs and began is not None else None
        """Turns of a loop around the one with the steps."""
        self.is_of_epochs = is_of_epochs
        """Whether another loop is around the step alone: a turn of its own is many steps."""
        line = frames.with_text({"file": frame.f_code.co_filename, "line": branch.line, "function": frame.f_code.co_name})
        self.line: Line = line
        self._setting: _Entry | _Local | None = None

    @guarded
    def shorten(self) -> bool:
        """Has it come in each turn from now on. False where its length is no variable that can be set for that."""
        if self._setting is None and self._can_be_short:
            frame = _running(self._frame, self._code)
            setting = _setting(frame, self._every) if frame is not None else None
            if setting is not None and setting.replace(self._length, 1):
                self._setting = setting
        return self._setting is not None

    @guarded
    def has_passed(self) -> bool:
        """Whether the counter in its condition went past the end of an interval since it was found: then its branch has come."""
        frame = _running(self._frame, self._code)
        if frame is None or self._began is None:
            return False
        variables = extent.Variables(frame)
        now = variables.value(self._counter)
        # At the end itself the branch may be still to come.
        return type(now) is int and (max(self._began, 1) - 1) // self._length < (now - 1) // self._length

    @guarded
    def restore(self) -> None:
        """Gives the setting its own value back, unless the script has given it another one since."""
        setting, self._setting = self._setting, None
        if setting is not None:
            setting.replace(1, self._length)


def of_this_step(has_loader: bool = False) -> list[Interval]:
    """Those of the loops around the step, the innermost frame's first. `has_loader`: a data loader feeds the step, in a loop that may be a library's."""
    found: list[Interval] = []
    has_loop = False
    for frame in extent.users():
        found += _of(frame, has_loop, has_loader)
        loops = extent.loops_in(frame.f_code.co_filename)
        has_loop = has_loop or any(frame.f_code.co_firstlineno <= it.lineno and _is_in(frame.f_lineno, it) for it in loops)
    return found


@guarded
def longest_that_stores() -> tuple[int, Line] | None:
    """The branch beside the step that stores something every so many turns of a loop around both, and how many: the longest interval."""
    longest: tuple[int, Line] | None = None
    for frame in extent.users():
        variables = extent.Variables(frame)
        for branch in _branches_that_store(frame.f_code.co_filename):
            for it in branch.remainders if branch.is_beside(frame.f_lineno) else ():
                length, counter = variables.value(it.right), variables.value(it.left)
                if type(length) is int and type(counter) is int and max(2, longest[0] + 1 if longest else 0) <= length <= MOST_LOOPS:
                    line: Line = frames.with_text({"file": frame.f_code.co_filename, "line": branch.line, "function": frame.f_code.co_name})
                    longest = length, line
    return longest


def _behind_the_loops() -> list[tuple[FrameType, list[Any]]]:
    """The frames with code that comes after all loops around the step: that of the outermost loop, with its loops, and those around it. What stands
    behind a step, or behind an inner loop, comes in each turn. Where a library has the loop: those that called the library."""
    users = [it for it in extent.users() if it.f_code.co_name not in extent.COMPREHENSIONS]
    around = []
    for frame in users:
        first = 0 if frame.f_code.co_name == "<module>" else frame.f_code.co_firstlineno
        around.append([it for it in extent.loops_in(frame.f_code.co_filename) if first <= it.lineno and _is_in(frame.f_lineno, it)])
    outermost = max((i for i, it in enumerate(around) if it), default=None)
    if outermost is None:
        outermost = len(users) - 1
        while outermost > 0 and users[outermost - 1].f_back is users[outermost]:
            outermost -= 1
    return list(zip(users, around))[max(outermost, 0) :]


@guarded
def loads_after_the_loops() -> Line | None:
    """The line behind the loops around the step that loads weights again, and not into host memory: the best checkpoint, a model for a test."""
    for frame, around in _behind_the_loops():
        file, here = frame.f_code.co_filename, frame.f_lineno
        tree, function = source.tree(file), frame.f_code.co_name
        end = max((it.end_lineno or 0 for it in around), default=here)
        functions = [it for it in ast.walk(tree) if isinstance(it, (ast.FunctionDef, ast.AsyncFunctionDef))]
        own = next((it for it in functions if it.name == function and _is_in(here, it)), tree)
        others = [it for it in functions if it is not own and not _is_in(here, it)]
        for node in ast.walk(own):
            if isinstance(node, ast.Call) and node.lineno > end and _loads(node) and not any(_is_in(node.lineno, it) for it in others):
                return frames.with_text({"file": file, "line": node.lineno, "function": function})
    return None


@guarded
def computes_after_the_loops() -> Line | None:
    """The line behind the loops around the step that calls a model or goes back, or gives a model to a function of the script's, or calls one
    that does so, and that the loops do not call: a test, a second stage, statistics of an averaged network."""
    from torch.nn import Module

    for frame, around in _behind_the_loops():
        file, here = frame.f_code.co_filename, frame.f_lineno
        tree, variables = source.tree(file), extent.Variables(frame)
        end = max((it.end_lineno or 0 for it in around), default=here)
        functions = [it for it in ast.walk(tree) if isinstance(it, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
        own = next((it for it in functions if it.name == frame.f_code.co_name and _is_in(here, it)), tree)
        inner = {it.lineno for each in functions if each is not own and not _is_in(here, each) for it in ast.walk(each) if hasattr(it, "lineno")}
        names = {it.name for it in functions if not isinstance(it, ast.ClassDef)}
        in_loops = {ast.unparse(it.func) for each in around for it in ast.walk(each) if isinstance(it, ast.Call)}

        def computes(node: ast.AST, variables: extent.Variables = variables) -> bool:
            if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
                return False
            goes_back = isinstance(node.func, ast.Attribute) and node.func.attr == "backward"
            return goes_back or isinstance(variables.value(node.func), Module)

        for node in ast.walk(own):
            if isinstance(node, ast.Call) and end < node.lineno and node.lineno not in inner:
                called = variables.value(node.func) if isinstance(node.func, (ast.Name, ast.Attribute)) else None
                given = [variables.value(it) for it in [*node.args, *(it.value for it in node.keywords)]]
                code = getattr(called, "__code__", None)
                # One that stands behind the loops is not defined yet.
                is_users = code is not None and frames.is_users(code.co_filename) or ast.unparse(node.func) in names
                is_new = is_users and ast.unparse(node.func) not in in_loops
                does = is_new and any(computes(it) for function in _called(tree, node, ()) for it in ast.walk(function))
                if does or computes(node) or is_new and any(isinstance(it, Module) for it in given):
                    return frames.with_text({"file": file, "line": node.lineno, "function": frame.f_code.co_name})
    return None


def _loads(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    is_load = name.endswith(("torch.load", "load_file", ".from_pretrained"))
    return is_load and not any(it.arg in ("map_location", "device") and "cpu" in ast.unparse(it.value) for it in call.keywords)


def _running(identity: int, code: CodeType) -> FrameType | None:
    # A frame that is held would hold its tensors: it is looked for, and has returned if it is not there.
    return next((it for it in extent.users() if id(it) == identity and it.f_code is code), None)


def _of(frame: FrameType, has_inner_loop: bool, has_loader: bool) -> list[Interval]:
    here, res = frame.f_lineno, []
    variables = extent.Variables(frame)
    for branch in _branches(frame.f_code.co_filename):
        is_ahead = branch.is_beside(here) and not any(variables.value(it) is False for it in branch.conditions)
        for it in branch.remainders if is_ahead else ():
            length, now = variables.value(it.right), variables.value(it.left)
            if type(now) not in (int, type(None)):
                continue  # A text, or what the device would have to say.
            if type(length) is int and 2 <= length <= MOST_LOOPS:
                is_fed = has_loader and "epoch" in ast.unparse(it.left).lower()
                is_of_epochs = has_inner_loop or is_fed or branch.is_outside_of_a_loop(here)
                # At this moment the step is over, and its number mostly not counted yet.
                to_come = length - now % length if type(now) is int and not is_of_epochs else None
                res.append(Interval(frame, branch, it, now, length, to_come, is_of_epochs))
    return res


@functools.lru_cache(maxsize=16)
def _branches(file: str) -> list[_Branch]:
    """Branches with a remainder in their condition and an evaluation in their body."""
    tree = source.tree(file)
    return [_Branch(tree, it, _remainders(it.test)) for it, evaluates in _with_remainder(file) if evaluates]


@functools.lru_cache(maxsize=16)
def _with_remainder(file: str) -> list[tuple[ast.If, bool]]:
    """Branches with a remainder in their condition, and whether an evaluation is in their body."""
    lines = [it.partition("#")[0] for it in linecache.getlines(file)]
    res = []
    for it in ast.walk(source.tree(file)):
        if isinstance(it, ast.If) and _remainders(it.test):
            body = lines[it.body[0].lineno - 1 : min(it.body[-1].end_lineno or 0, it.body[0].lineno + MOST_LINES)]
            res.append((it, any(map(EVALUATION.search, body))))
    return res


@functools.lru_cache(maxsize=16)
def _branches_that_store(file: str) -> list[_Branch]:
    """Branches with a remainder in their condition that put something into a list, a dict or an attribute, by themselves or in a function of the
    file, and have no evaluation; numbers, and what goes to the host, are nothing to store."""
    tree = source.tree(file)
    res = []
    for it in [it for it, evaluates in _with_remainder(file) if not evaluates]:
        functions = [found for found in _called(tree, it) if getattr(found, "name", "") != "forward"]
        if any(_stores(node) for part in (*it.body, *functions) for node in ast.walk(part)):
            res.append(_Branch(tree, it, _remainders(it.test)))
    return res


def _stores(node: ast.AST) -> bool:
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        values: list[ast.expr] = [node.value] if any(isinstance(it, (ast.Attribute, ast.Subscript)) for it in targets) else []
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PUTS:
        values = node.args
    else:
        return False
    parts = [part for value in values for part in ast.walk(value)]
    calls = [it.func for it in parts if isinstance(it, ast.Call)]
    names = {it.attr if isinstance(it, ast.Attribute) else getattr(it, "id", "") for it in calls}
    return not names & _TO_THE_HOST and any(isinstance(it, ast.Name) for it in parts)


class _Branch:
    """Such a branch in the text of a file."""

    def __init__(self, tree: ast.Module, branch: ast.If, remainders: list[ast.BinOp]) -> None:
        self.line, self.remainders = branch.lineno, remainders
        self._tree, self._branch = tree, branch
        around = [it for it in ast.walk(tree) if it is not branch and isinstance(it, _AROUND) and _is_in(branch.lineno, it)]
        self._loops = [it for it in around if not isinstance(it, ast.If)]
        nests = [it for it in around if isinstance(it, ast.If) and any(_is_in(it.lineno, loop) for loop in self._loops)]
        self.has_conditions = bool(nests) or isinstance(branch.test, ast.BoolOp)
        self.conditions = [it.test for it in nests if branch.lineno <= (it.body[-1].end_lineno or 0)]
        """What must be true, too: where one is False, the script has turned its evaluation off."""
        if isinstance(branch.test, ast.BoolOp) and isinstance(branch.test.op, ast.And):
            self.conditions += branch.test.values

    def is_beside(self, line: int) -> bool:
        """Whether the line is in a loop around it, and not in the branch."""
        return any(_is_in(line, it) for it in self._loops) and not _is_in(line, self._branch)

    def is_outside_of_a_loop(self, line: int) -> bool:
        """Whether the line is in a loop that is not around it."""
        loops = (it for it in ast.walk(self._tree) if isinstance(it, (ast.For, ast.AsyncFor, ast.While)))
        return any(_is_in(line, it) and not _is_in(self.line, it) for it in loops)

    def comes_if_one(self, every: ast.expr, step: int) -> bool:
        """Whether it comes in each turn if `every` is 1, which changes nothing else for the step in line `step`."""
        name = ast.unparse(every)
        tests = self._branch.test.values if isinstance(self._branch.test, ast.BoolOp) else [self._branch.test]
        if not any(_is_true_if_one(it, name) for it in tests):
            return False
        loop = min(self._loops, key=lambda it: it.lineno)
        # Gradients are accumulated over as many.
        waits = (it for it in ast.walk(loop) if isinstance(it, ast.If) and _is_in(step, it))
        if any(ast.unparse(it.right) == name for branch in waits for it in _remainders(branch.test)):
            return False
        return not any(_computes_with(it, every) for it in (loop, *_called(self._tree, loop)))


def _is_true_if_one(test: ast.expr, name: str) -> bool:
    def is_remainder(it: ast.expr) -> bool:
        return isinstance(it, ast.BinOp) and isinstance(it.op, ast.Mod) and ast.unparse(it.right) == name

    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return is_remainder(test.operand)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return False
    sides = [test.left, test.comparators[0]]
    return any(is_remainder(it) for it in sides) and any(ast.unparse(it) in ("0", name + " - 1") for it in sides)


def _computes_with(tree: ast.AST, every: ast.expr) -> bool:
    """Whether the code sets `every`, or takes it for more than remainders, for whether it is set at all, and for text and means."""
    name = ast.unparse(every)
    harmless: set[int] = set()
    # What is around comes before what it is around.
    for it in ast.walk(tree):
        if isinstance(it, (ast.Name, ast.Attribute, ast.Subscript)):
            if id(it) not in harmless and _is_same(it, every):
                return True
        elif isinstance(it, ast.FormattedValue):
            harmless.update(map(id, ast.walk(it)))
        elif isinstance(it, ast.Compare):
            sides = [it.left, *it.comparators]
            if any(ast.unparse(each.right) == name for each in _remainders(it)) or all(isinstance(each, ast.Constant) or ast.unparse(each) == name for each in sides):
                harmless.update(map(id, ast.walk(it)))
        elif isinstance(it, ast.BinOp) and isinstance(it.op, (ast.Mod, ast.Div)):
            harmless.add(id(it.right))
        elif isinstance(it, ast.BoolOp):
            harmless.update(map(id, it.values))
        elif isinstance(it, (ast.If, ast.IfExp)):
            harmless.add(id(it.test))
    return False


def _is_same(it: ast.expr, every: ast.expr) -> bool:
    """Whether both may be the same variable: an attribute or a key has several owners' names, as `self.args.every` and `args.every`."""
    if isinstance(it, ast.Attribute) and isinstance(every, ast.Attribute):
        return it.attr == every.attr
    if isinstance(it, ast.Subscript) and isinstance(every, ast.Subscript):
        return ast.unparse(it.slice) == ast.unparse(every.slice)
    return isinstance(it, ast.Name) and isinstance(every, ast.Name) and it.id == every.id


def _called(tree: ast.Module, loop: ast.AST, first: tuple[str, ...] = ("forward",)) -> list[ast.AST]:
    """The functions of the file that the loop may call, by their names; a model calls `forward`."""
    functions: dict[str, list[ast.AST]] = {}
    for it in ast.walk(tree):
        if isinstance(it, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.setdefault(it.name, []).append(it)
    found = [it for name in first for it in functions.pop(name, [])]
    todo = [loop, *found]
    while todo:
        for it in ast.walk(todo.pop()):
            called = functions.pop(ast.unparse(it.func).rpartition(".")[2], []) if isinstance(it, ast.Call) else []
            found += called
            todo += called
    return found


def _remainders(tree: ast.AST) -> list[ast.BinOp]:
    return [it for it in ast.walk(tree) if isinstance(it, ast.BinOp) and isinstance(it.op, ast.Mod)]


def _is_in(line: int, node: ast.stmt) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


class _Entry:
    """What a dictionary has for a key: a variable of a module, an attribute, a key of a configuration."""

    def __init__(self, owner: Any, key: Any) -> None:
        self._key = key
        self._owner: Callable[[], Any]
        try:
            self._owner = weakref.ref(owner)  # It may hold a model.
        except TypeError:
            self._owner = lambda: owner

    def replace(self, now: int, new: int) -> bool:
        """False, and nothing, where it is not `now`. No code of the script runs for it."""
        owner = self._owner()
        entries = owner if type(owner) is dict else getattr(owner, "__dict__", None)
        if type(entries) is not dict or not _is(entries.get(self._key), now):
            return False
        entries[self._key] = new
        return True


class _Local:
    """A variable of a function that runs."""

    def __init__(self, frame: FrameType, name: str) -> None:
        self._frame, self._code, self._name = id(frame), frame.f_code, name

    def replace(self, now: int, new: int) -> bool:
        """False, and nothing, where it is not `now`, or the function has returned."""
        frame = _running(self._frame, self._code)
        if frame is None:
            return False
        names = frame.f_locals
        is_copy = type(names) is dict  # Before Python 3.13.
        if is_now := _is(names.get(self._name), now):
            names[self._name] = new
            if is_copy:
                ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
        frames.forget_copy(frame, holders=1)
        return is_now


def _is(value: Any, number: int) -> bool:
    return type(value) is int and value == number


def _setting(frame: FrameType, target: ast.expr) -> _Entry | _Local | None:
    """What a name, an attribute or a key of the frame stands for."""
    if isinstance(target, ast.Name):
        is_function = bool(frame.f_code.co_flags & frames.OPTIMIZED)
        if is_function and target.id in frame.f_code.co_varnames + frame.f_code.co_cellvars + frame.f_code.co_freevars:
            return _Local(frame, target.id)
        return _Entry(frame.f_globals if is_function or target.id not in frame.f_locals else frame.f_locals, target.id)
    variables = extent.Variables(frame)
    if isinstance(target, ast.Attribute):
        return _Entry(variables.value(target.value), target.attr)
    if isinstance(target, ast.Subscript) and type(variables.value(target.value)) is dict:
        return _Entry(variables.value(target.value), variables.value(target.slice))
    return None
