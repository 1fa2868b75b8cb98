"""Who holds the tensors that stay allocated: a list, a dict, an attribute, a closure, a cache of functools, a hook, an iterator, an error's traceback.

Looked for once, when the run is about to end: from the variables of the functions that run (or of the error that ended the program) and of the
user's modules, through what they refer to, to tensors on a device. Only references are read: no property runs, no value is copied, and
nothing is kept. The look has a limit of processor time, so that a busy machine sees as much, and of objects. What only autograd holds is found by the tensors whose graph it is, or by the
context of a function of the user's own. What nobody holds but itself, and that waits for Python's garbage collector, is looked for where memory
rises: the collector says what it would free.
"""

from __future__ import annotations

import ast
import collections
import functools
import gc
import itertools
import sys
import time
import types
from typing import TYPE_CHECKING, Any

from plimsoll_agent import source
from plimsoll_agent.run import ahead, drained, frames
from plimsoll_agent.run.guard import guarded
from plimsoll_agent.run.intervals import PUTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from plimsoll_agent.kinds import Frame, Line, Torch
    from plimsoll_agent.run.memory import Memory
    from plimsoll_agent.run.recording import Recording
    from plimsoll_agent.run.tensors import Tensors

MOST_SECONDS = 1.0
MOST_OBJECTS = 200_000
MOST_MEMBERS = 20_000
MOST_NODES = 100_000
MOST_ADDRESSES = 32_768
MOST_KEEPERS = 64
MOST_KEYS = 8
"""A dict that has more members is told as one thing."""
_DEEPEST = 9
_NEAR = 4

_PLAIN = (str, bytes, int, float, complex, bool, type(None), types.ModuleType, types.BuiltinFunctionType, types.CodeType)
_MEMBERS = (list, tuple, set, frozenset, collections.deque)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_TEE: type = type(itertools.tee(())[0])
_ITERATORS = (enumerate, filter, map, zip, itertools.chain, itertools.cycle, itertools.islice, itertools.zip_longest, _TEE, itertools._tee_dataobject)  # type: ignore[attr-defined]


class _Path:
    """How an object was reached: variable, attributes, members."""

    __slots__ = ("again", "before", "kind", "name", "owner")

    def __init__(self, before: _Path | None, kind: str, name: str, owner: Any = None) -> None:
        self.before, self.kind, self.name, self.owner = before, kind, name, owner
        # The same attribute of an object of the same class was passed a few steps before: objects of a chain or a tree.
        self.again, near = False, before
        for _ in range(_NEAR):
            if kind != "attribute" or near is None or self.again:
                break
            self.again = near.kind == kind and near.name == name and near.owner is owner
            near = near.before

    def steps(self) -> list[_Path]:
        """From the variable on."""
        found, path = [], self
        while path is not None:
            found.append(path)
            path = path.before  # type: ignore[assignment]
        return found[::-1]

    def shown(self) -> str:
        """As `tracker.total[...]`."""
        text = ""
        for it in self.steps():
            if it.again:
                continue
            text += {"variable": it.name, "attribute": "." + it.name, "member": f'["{it.name}"]' if it.name else "[...]", "cache": "[...]", "cycle": "[...]", "closure": " > " + it.name, "generator": " > " + it.name}.get(it.kind, it.name)
        while "[...][...]" in text:
            text = text.replace("[...][...]", "[...]")
        return text


class Keepers:
    """Writes down who holds which tensors."""

    def __init__(self, torch: Torch, memory: Memory, recording: Recording, tensors: Tensors) -> None:
        self._torch, self._memory, self._recording, self._tensors = torch, memory, recording, tensors
        self._has_looked = False
        self.memory_rises: Callable[[], bool] = lambda: False
        # Python takes this name from the main module when the script has ended.
        self._script = getattr(sys.modules.get("__main__"), "__file__", None)

    @guarded
    def of_the_running(self) -> None:
        """The run is about to be ended here; its functions have their variables still."""
        if not self._has_looked:
            self._has_looked = self._memory.started
            self._look(_running(sys._getframe(1)), self.memory_rises())

    @guarded
    def of_those_that_may_return(self) -> None:
        """The run may come to its end by itself, and the variables of its functions are gone then."""
        if not self._has_looked:
            self._look(_running(sys._getframe(1)))

    @guarded
    def of_the_ended(self, error: BaseException | None, ran_out: bool) -> None:
        """The program is over; an error's traceback has the variables of its functions still."""
        if not self._has_looked:
            traceback, failed = error.__traceback__ if error is not None else None, []
            while traceback is not None:
                failed.append(traceback.tb_frame)
                traceback = traceback.tb_next
            self._has_looked = self._memory.started
            self._look(failed[::-1], ran_out or self.memory_rises())

    def _look(self, running: list[types.FrameType], for_garbage: bool = False) -> None:
        if not self._memory.started:
            return
        until = time.thread_time() + MOST_SECONDS
        groups: dict[tuple[int, str], _Group] = {}
        roots = itertools.chain(_roots(running + ahead.running_elsewhere(), self._script), _contexts(self._torch), _garbage(self._torch) if for_garbage else ())
        for path, root, tensor in self._tensors_from(roots, _pools(running), until):
            where = self._tensors.storage_of(tensor._values() if tensor.layout is self._torch.sparse_coo else tensor)
            graph = getattr(tensor, "grad_fn", None)
            if where is None and graph is not None and not tensor.is_cuda:
                # A number that was moved to the host has the graph of what it was computed from.
                where = (self._torch.cuda.current_device(), 0, 0)
            if where is not None:
                key = (where[0], path.shown())
                if key not in groups:
                    groups[key] = _Group(path, root, isinstance(tensor, self._torch.nn.Parameter))
                groups[key].add(path, where[1], where[2], tensor)
        most = sorted(groups.items(), key=lambda it: -it[1].bytes)
        # A loss is small, and its graph is not.
        models = [it for it in most if it[1].is_of_a_model][:MOST_KEEPERS]
        most = [it for it in most if not it[1].is_of_a_model]
        most = most[:MOST_KEEPERS] + models + [it for it in most[MOST_KEEPERS:] if it[1].graphs][:MOST_KEEPERS]
        by_device: dict[int, list[Any]] = {}
        for (device, shown), group in most:
            by_device.setdefault(device, []).append(group.told(shown, until))
        for device, entry in drained.told(running, self._torch, self._tensors.storage_of):
            by_device.setdefault(device, []).append(entry)
        place = self._memory.place().where()
        for device, entries in sorted(by_device.items()):
            self._recording.write("keepers", device=device, entries=entries, **place)

    def _tensors_from(self, roots: Iterable[tuple[_Path, _Root, Any]], others: Iterable[tuple[_Path, _Root, Any]], until: float) -> Iterator[tuple[_Path, _Root, Any]]:
        """(path, root, tensor) of each tensor that is reached, the shortest path first; last from `others`, which a variable may lead to. The
        parameters of a model have the path of who holds the model, if that is more than a variable."""
        seen: dict[int, Any] = {}  # Objects that are made for this look, too: their ids are not used again meanwhile.
        model: _Path | None = None
        todo = collections.deque((path, root, value, 0, model) for path, root, value in roots)
        is_tensor, parameter, module = self._torch.Tensor, self._torch.nn.Parameter, self._torch.nn.Module
        late = iter(others)
        while len(seen) < MOST_OBJECTS:
            if not todo:
                todo.extend((path, root, value, 0, None) for path, root, value in itertools.islice(late, 1))
            if not todo:
                return
            path, root, value, depth, model = todo.popleft()
            if isinstance(value, _PLAIN) or id(value) in seen:
                continue
            seen[id(value)] = value
            if isinstance(value, is_tensor):
                if isinstance(value, parameter):
                    if model is not None and model.kind != "variable":
                        yield model, root, value
                else:
                    yield path, root, value
                    if value.is_leaf and value.requires_grad and value.grad is not None:
                        yield _Path(path, "gradient", ".grad"), root, value.grad
                # What the script stores at a tensor: `p.grad_sample = []`.
                fields = value.__dict__ if type(value) in (is_tensor, parameter) else {}
                todo.extend((_Path(path, "attribute", name, type(value)), root, it, depth + 1, None) for name, it in list(fields.items()))
                continue
            if model is None and isinstance(value, module):
                model, depth = path, 0
            if depth < _DEEPEST:
                # However many objects refer to one another, they are one chain.
                todo.extend((further, root, it, depth + (not further.again), model) for further, it in _referred(path, value))
            if not len(seen) % 256 and until < time.thread_time():
                return


def _running(frame: types.FrameType | None) -> list[types.FrameType]:
    """The functions that run, from `frame` outwards."""
    found: list[types.FrameType] = []
    while frame is not None and len(found) < 100:
        found.append(frame)
        frame = frame.f_back
    return found


class _Root:
    """The function or the module that a variable is of."""

    __slots__ = ("code", "file", "first", "function", "line")

    def __init__(self, file: str, function: str | None, first: int, line: int, code: types.CodeType | None = None) -> None:
        self.file, self.function, self.first, self.line, self.code = file, function, first, line, code


class _Group:
    """The tensors that are reached in one way."""

    def __init__(self, path: _Path, root: _Root, is_of_a_model: bool) -> None:
        self._path, self._root, self.is_of_a_model = path, root, is_of_a_model
        self._addresses: dict[int, int] = {}
        self._tensors = self.bytes = 0
        self._members: set[_Path] = set()
        self.graphs: list[Any] = []
        self._link: str | None = None
        self._largest: tuple[int, list[int], str] = (0, [], "")
        self._is_sparse = False

    def add(self, path: _Path, address: int, size: int, tensor: Any) -> None:
        self._tensors += 1
        graph = getattr(tensor, "grad_fn", None)
        self._is_sparse |= bool(tensor.is_sparse)
        if self._largest[0] < size:
            self._largest = _as_largest(tensor, size) or self._largest
        self._members.update([it for it in path.steps() if it.kind == "member" and it.owner is not None][-1:])
        # Of a chain, the first member is reached without its link, or with one of it.
        if self._link is None:
            self._link = next((it.name for it in path.steps() if it.again), None)
        if address and address not in self._addresses and len(self._addresses) < MOST_ADDRESSES:
            self._addresses[address] = size
            self.bytes += size
        if graph is not None and len(self.graphs) < MOST_MEMBERS:
            self.graphs.append(graph)

    def told(self, shown: str, until: float) -> dict[str, Any]:
        """As it stands in the recording."""
        line, inner = _Finder(self._path, self._root).lines()
        containers = [it.owner for it in self._path.steps() if it.kind == "member" and it.owner is not None]
        limited = next((it for it in containers if isinstance(it, collections.deque) and it.maxlen is not None), None)
        # How large it becomes is known where all of it was counted.
        if limited is not None and (MOST_MEMBERS < len(limited) or MOST_ADDRESSES <= len(self._addresses)):
            limited = None
        return {
            "where": shown,
            "what": _what(self._path),
            "tensors": self._tensors,
            "bytes": self.bytes,
            "nodes": _nodes(self.graphs, until),
            "members": len(limited) if limited is not None else None,
            "limit": limited.maxlen if limited is not None else None,
            "addresses": sorted(self._addresses),
            "line": line,
            "inner": inner,
            "link": self._link,
            "shape": self._largest[1],
            "type": self._largest[2],
            "sparse": self._is_sparse,
            "unlimited": self._unlimited(containers, shown, inner or line),
        }

    def _unlimited(self, containers: list[Any], shown: str, line: Line | None) -> dict[str, Any] | None:
        """Of what another thread fills without a limit: how many entries wait there."""
        # Of futures in a deque, those who fill it are calls in a pool.
        kind = next((kind for it in reversed(containers) if (kind := ahead.kind_of(it)) is not None), None)
        if kind is None or line is None or not ahead.is_filled_by_another(kind, line, shown.partition("[")[0]):
            return None
        return {"kind": kind, "entries": len(self._members)}


def _roots(running: list[types.FrameType], script: str | None) -> Iterator[tuple[_Path, _Root, Any]]:
    for frame in running:
        code = frame.f_code
        if frames.is_ours(code.co_filename):
            continue
        function = None if code.co_name == "<module>" else code.co_name
        root = _Root(code.co_filename, function, code.co_firstlineno, frame.f_lineno, code)
        for name, value in frames.variables(frame).items():
            yield _Path(None, "variable", name), root, value
    for module, file in sorted(frames.modules_of_users(script), key=lambda it: vars(it[0]).get("__name__") != "__main__"):
        for name, value in list(vars(module).items()):
            yield _Path(None, "variable", name), _Root(file, None, 1, 0), value


def _contexts(torch: Torch) -> Iterator[tuple[_Path, _Root, Any]]:
    """What functions of autograd that the user wrote keep as attributes of `ctx`. One that keeps its output there is held by the graph of that
    output alone, and so by itself."""
    written = {}
    todo = [torch.autograd.Function]
    while todo:
        function = todo.pop()
        todo += type.__subclasses__(function)
        file = _file_of(function)
        if file is not None and frames.is_users(file):
            written[function._backward_cls] = (function, file)
    # To look at every object takes a third of a second.
    for it in gc.get_objects() if written else ():
        if type(it) in written:
            function, file = written[type(it)]
            path = _Path(None, "context", function.__name__ + ".forward > ctx")
            for name, value in list(vars(it).items()):
                yield _Path(path, "attribute", name, function), _Root(file, "forward", 1, 0), value


def _pools(running: list[types.FrameType]) -> Iterator[tuple[_Path, _Root, Any]]:
    """What calls in pools of threads returned, and no variable leads to."""
    files = dict.fromkeys(it.f_code.co_filename for it in running if frames.is_users(it.f_code.co_filename))
    begin = next(((file, it) for file in files for it in ahead.begins(file)), None)
    if begin is not None:
        file, it = begin
        for call in ahead.calls():
            yield _Path(None, "pool", ast.unparse(it.func), it.lineno), _Root(file, None, 1, 0), call


def _garbage(torch: Torch) -> list[tuple[_Path, _Root, Any]]:
    """The models that refer to themselves, and that nothing else refers to. One is told with the user's function that closes the circle, if there is one."""
    flags, gc_garbage = gc.get_debug(), gc.garbage[:]
    try:
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = gc.garbage[len(gc_garbage) :]
    finally:
        gc.set_debug(flags)
        gc.garbage[:] = gc_garbage
    modules = [it for it in found if isinstance(it, torch.nn.Module)]
    inner = {id(part) for it in modules for part in it._modules.values()}
    functions = [it for it in found if isinstance(it, types.FunctionType) and it.__closure__ and frames.is_users(it.__code__.co_filename)]
    roots: list[tuple[_Path, _Root, Any]] = []
    for module in modules:
        file = _file_of(type(module))
        if id(module) in inner or file is None:
            continue
        closing = next((it for it in functions if any(cell.cell_contents is module for cell in it.__closure__ or () if _is_filled(cell))), None)
        path = _Path(None, "garbage", type(module).__name__, closing)
        roots.append((_Path(path, "garbage", "", closing), _Root(file, None, 1, 0), module))
    return roots


def _file_of(kind: type) -> str | None:
    """The file that a class is written in. Of the script's own, Python has forgotten the name when the script has ended, and their methods know it."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file or next((it.__code__.co_filename for it in list(vars(kind).values()) if isinstance(it, types.FunctionType)), None)


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _referred(path: _Path, value: Any) -> list[tuple[_Path, Any]]:
    """What an object refers to."""
    kind = type(value)
    if (getattr(kind, "__module__", None) or "").startswith("plimsoll"):
        return []
    found: list[tuple[_Path, Any]] = []
    if isinstance(value, _MEMBERS):
        container = value if isinstance(value, collections.deque) else None
        found += [(_Path(path, "member", "", container), it) for it in list(value)[-MOST_MEMBERS:]]
    elif (waiting := ahead.members(value)) is not None:
        found += [(_Path(path, "member", "", value), it) for it in waiting[-MOST_MEMBERS:]]
    elif isinstance(value, dict):
        found += [(_Path(path, "member", _key_of(key, it) if len(value) <= MOST_KEYS else ""), it) for key, it in list(value.items())[-MOST_MEMBERS:]]
    elif isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or ()):
            try:
                found.append((_Path(path, "closure", name, value), cell.cell_contents))
            except ValueError:
                pass  # It has no value yet.
        defaults, code = value.__defaults__ or (), value.__code__
        names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
        found += [(_Path(path, "closure", name, value), it) for name, it in zip(names, defaults)]
    elif isinstance(value, types.MethodType):
        found += [(path, value.__self__), (path, value.__func__)]
    elif isinstance(value, functools._lru_cache_wrapper):
        # The arguments of its calls, and what these returned; in a dict, if their number has no limit.
        for it in gc.get_referents(value):
            if isinstance(it, dict):
                found += [(_Path(path, "cache", "", value), key) for key in list(it)[-MOST_MEMBERS:]]
            found.append((_Path(path, "cache", "", value), it))
    elif isinstance(value, functools.partial):
        found += [(_Path(path, "member", ""), it) for it in (value.func, value.args, value.keywords)]
    elif isinstance(value, _ITERATORS):
        # What it goes through, and what `itertools.cycle` keeps to give it again.
        is_cycle = isinstance(value, itertools.cycle)
        found += [(_Path(path, "cycle" if is_cycle and isinstance(it, list) else "member", ""), it) for it in gc.get_referents(value)]
    elif isinstance(value, types.GeneratorType):
        if value.gi_frame is not None:
            found += [(_Path(path, "generator", name, value), it) for name, it in frames.variables(value.gi_frame).items()]
    elif isinstance(value, BaseException):
        traceback = value.__traceback__
        while traceback is not None:
            found += [(_Path(path, "traceback", " > " + name), it) for name, it in frames.variables(traceback.tb_frame).items()]
            traceback = traceback.tb_next
    elif isinstance(value, type):
        if frames.is_users(_file_of(value) or "<"):
            found += [(_Path(path, "attribute", name, value), it) for name, it in list(vars(value).items())]
        return found
    try:
        fields = object.__getattribute__(value, "__dict__")
    except AttributeError:
        fields = {}
    if isinstance(fields, dict):
        found += [(_Path(path, "attribute", str(name), kind), it) for name, it in list(fields.items())]
    for owner in kind.__mro__:
        slots = owner.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            try:
                found.append((_Path(path, "attribute", name, kind), object.__getattribute__(value, name)))
            except (AttributeError, TypeError):
                pass
    return found


def _key_of(key: Any, value: Any) -> str:
    """The key of a member that holds others, if it is a plain word."""
    return key if type(key) is str and key.isidentifier() and isinstance(value, (dict, *_MEMBERS)) else ""


def _what(path: _Path) -> str:
    """What kind of thing holds them."""
    steps = path.steps()
    kinds = [it.kind for it in steps]
    for kind in ("traceback", "garbage"):
        if kind in kinds:
            return kind
    if kinds[-1] == "gradient":
        return "gradient"
    if any(it.kind == "attribute" and it.name.endswith("_hooks") for it in steps):
        return "hook"
    if "context" in kinds:
        return "context"
    for kind in ("cache", "cycle", "generator"):
        if kind in kinds:
            return kind
    if "closure" in kinds:
        return "closure"
    if kinds[-1] == "member":
        return "container"
    return kinds[-1]


def _as_largest(tensor: Any, size: int) -> tuple[int, list[int], str] | None:
    """The bytes, the shape and the type of a tensor that is no small part of its storage."""
    try:
        is_all = size <= 2 * tensor.numel() * tensor.element_size()
        return (size, [int(it) for it in tensor.shape], str(tensor.dtype).removeprefix("torch.")) if is_all else None
    except (RuntimeError, NotImplementedError, ValueError):
        return None  # It has no shape: a nested tensor, a parameter of a lazy module.


def _nodes(graphs: list[Any], until: float) -> int:
    """How many nodes of autograd's graphs these hold."""
    seen, todo = set(graphs), list(graphs)
    while todo and len(seen) < MOST_NODES and time.thread_time() < until:
        for node, _ in todo.pop().next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                todo.append(node)
    return len(seen)


class _Finder:
    """Finds the line that puts a tensor where it is, in the text of the user's files."""

    def __init__(self, path: _Path, root: _Root) -> None:
        self._steps, self._root = path.steps(), root

    def lines(self) -> tuple[Line | None, Line | None]:
        """The line to look at, and the line of a method that it calls, if that puts it there."""
        try:
            return self._lines()
        except (SyntaxError, ValueError, RecursionError):
            return None, None

    def _lines(self) -> tuple[Line | None, Line | None]:
        root = self._root
        if self._steps[-1].kind == "gradient":
            return _line(root.file, _first(_wants_gradient(source.tree(root.file)))), None
        for at in range(len(self._steps) - 1, -1, -1):
            it = self._steps[at]
            key = next((after.name for after in self._steps[at + 1 : at + 2] if after.kind == "member"), "")
            if it.kind == "attribute":
                file = _file_of(it.owner) or ""
                if not frames.is_users(file):
                    put = _put(source.tree(root.file), it.name, True) if hasattr(it.owner, "grad_fn") and frames.is_users(root.file) else None
                    if put is not None:
                        return _line(root.file, put), None
                    # A library's object, which the user's own calls fill.
                    calls = self._calls_of_holder(at)
                    if calls is not None:
                        return calls, None
                    continue
                tree = source.tree(file)
                found = _put(tree, it.name, True, it.owner.__name__, key)
                if found is None:
                    continue
                inner = _line(file, found)
                if self._steps[0].kind == "context":
                    return inner, None
                method = _function_around(tree, found)
                if method == "__init__":
                    return inner, None
                caller = _first(_calls(source.tree(root.file), method, it.owner.__name__)) if method else None
                return (_line(root.file, caller), inner) if caller else (inner, None)
            if it.kind == "cache":
                code = getattr(getattr(it.owner, "__wrapped__", None), "__code__", None)
                if code is not None and frames.is_users(code.co_filename):
                    return _line(code.co_filename, code.co_firstlineno), None
            if it.kind == "garbage" and it.owner is not None:
                return _line(it.owner.__code__.co_filename, it.owner.__code__.co_firstlineno), None
            if it.kind == "garbage" and frames.is_users(root.file):
                classes = [node.lineno for node in ast.walk(source.tree(root.file)) if isinstance(node, ast.ClassDef) and node.name == self._steps[0].name]
                return _line(root.file, _first(classes)), None
            if it.kind == "pool":
                return _line(root.file, it.owner), None
            if it.kind in ("closure", "generator"):
                file = (it.owner.__code__ if it.kind == "closure" else it.owner.gi_code).co_filename
                found = _put(source.tree(file), it.name, False) if frames.is_users(file) else None
                if found is not None:
                    return _line(file, found), None
            if it.kind == "variable":
                is_of_library = root.code is not None and not frames.is_users(root.file)
                tree = source.of_function(root.code) if is_of_library else source.tree(root.file)
                function = _function(tree, root.function, root.first)
                found = _put(function, it.name, False, key=key)
                if found is None:
                    found = _put_by_a_caller(tree, function, it.name)
                if found is not None:
                    return _line(root.file, found, tree), None
        return None, None

    def _calls_of_holder(self, at: int) -> Line | None:
        holder = next((it for it in reversed(self._steps[:at]) if it.name), None)
        if holder is None or not frames.is_users(self._root.file):
            return None
        tree = source.tree(self._root.file)
        calls = [it for it in ast.walk(tree) if isinstance(it, ast.Call) and _is(_of_call(it), holder.name, holder.kind == "attribute")]
        puts = [it for it in calls if isinstance(it.func, ast.Attribute) and it.func.attr in PUTS or not isinstance(it.func, ast.Attribute)]
        in_loop = [it for it in puts if _is_in_loop(tree, it)]
        return _line(self._root.file, _first(it.lineno for it in in_loop or puts))


def _line(file: str, line: int | None, tree: ast.AST | None = None) -> Line | None:
    """That line; `tree`: of the text that it is of, if not of all of the file."""
    if line is None:
        return None
    function = _function_around(tree or source.tree(file), line) or "<module>"
    frame: Frame = {"file": file, "line": line, "function": function}
    return frames.with_text(frame)


def _first(lines: Iterable[int]) -> int | None:
    return next(iter(lines), None)


def _of_call(call: ast.Call) -> ast.AST:
    return call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr in PUTS else call.func


def _is(node: ast.AST, name: str, is_attribute: bool, key: str = "") -> bool:
    """`key`: of a member of it, as `history["dev"]`."""
    keys = set()
    while isinstance(node, ast.Subscript):
        keys.add(getattr(node.slice, "value", None) if isinstance(node.slice, ast.Constant) else None)
        node = node.value
    if key and key not in keys:
        return False
    if is_attribute:
        return isinstance(node, ast.Attribute) and node.attr == name
    return isinstance(node, ast.Name) and node.id == name


def _put(tree: ast.AST, name: str, is_attribute: bool, owner: str | None = None, key: str = "") -> int | None:
    """The line that puts something into this variable or attribute: a call such as `append`, `+=`, a member, and after these an assignment.
    `key`: into this member, if a line names it."""
    if key:
        found = _put_there(tree, name, is_attribute, owner, key)
        if found is not None:
            return found
    return _put_there(tree, name, is_attribute, owner)


def _put_there(tree: ast.AST, name: str, is_attribute: bool, owner: str | None, key: str = "") -> int | None:
    if owner is not None:
        classes = [it for it in ast.walk(tree) if isinstance(it, ast.ClassDef) and it.name == owner]
        own = next((found for it in classes if (found := _put_there(it, name, is_attribute, None, key)) is not None), None)
        # Where its `__init__` only begins it, somebody else fills it: `node.state = state`.
        is_begun = own is not None and own in _lines_of(tree, "__init__")
        others = [it.lineno for it in ast.walk(tree) if isinstance(it, ast.Assign) and any(_is_of_another(part, name) for part in it.targets)] if is_begun else []
        if own is not None:
            return max(others, default=own)
    puts: list[int] = []
    sets: list[int] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PUTS:
            if _is(node.func.value, name, is_attribute, key):
                puts.append(node.lineno)
        elif isinstance(node, ast.AugAssign) and _is(node.target, name, is_attribute, key):
            puts.append(node.lineno)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if _is(part, name, is_attribute, key):
                        (puts if isinstance(part, ast.Subscript) else sets).append(node.lineno)
    in_init = _lines_of(tree, "__init__")
    late = [it for it in puts if it not in in_init] or puts or [it for it in sets if it not in in_init] or sets
    return min(late) if puts else max(late, default=None)


def _put_by_a_caller(tree: ast.AST, function: ast.AST, name: str) -> int | None:
    """The same for a variable that the function was given, in one that calls it."""
    if not isinstance(function, FUNCTIONS):
        return None
    names = [it.arg for it in function.args.posonlyargs + function.args.args]
    if name not in names:
        return None
    for caller in [it for it in ast.walk(tree) if isinstance(it, FUNCTIONS) and it is not function] + [tree]:
        for call in ast.walk(caller):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", getattr(call.func, "id", None)) == function.name:
                at = names.index(name) - (isinstance(call.func, ast.Attribute) and names[0] in ("self", "cls"))
                by_name = [it.value for it in call.keywords if it.arg == name]
                given = next(iter(by_name or call.args[at : at + 1]), None)
                found = _put(caller, given.id, False) if isinstance(given, ast.Name) else None
                if found is not None:
                    return found
    return None


def _is_of_another(target: ast.AST, name: str) -> bool:
    """`node.name`, and not `self.name`."""
    return isinstance(target, ast.Attribute) and target.attr == name and isinstance(target.value, ast.Name) and target.value.id != "self"


def _lines_of(tree: ast.AST, name: str) -> set[int]:
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def _function(tree: ast.AST, name: str | None, first: int) -> ast.AST:
    """The function of this name that begins there; the whole file if it is not there."""
    named = [it for it in ast.walk(tree) if isinstance(it, FUNCTIONS) and it.name == name]
    return min(named, key=lambda it: abs(it.lineno - first), default=tree)


def _function_around(tree: ast.AST, line: int) -> str | None:
    around = [it for it in ast.walk(tree) if isinstance(it, FUNCTIONS) and it.lineno <= line <= (it.end_lineno or it.lineno)]
    return max(around, key=lambda it: it.lineno).name if around else None


def _calls(tree: ast.AST, method: str, owner: str) -> Iterator[int]:
    """Lines outside of a class that call this method of it by name."""
    own: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == owner:
            own.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method and node.lineno not in own:
            yield node.lineno


def _wants_gradient(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_" or isinstance(node, ast.Assign) and any(isinstance(it, ast.Attribute) and it.attr == "requires_grad" for it in node.targets):
            yield node.lineno


def _is_in_loop(tree: ast.AST, node: ast.Call) -> bool:
    loops = [it for it in ast.walk(tree) if isinstance(it, (ast.For, ast.While))]
    return any(it.lineno <= node.lineno <= (it.end_lineno or it.lineno) for it in loops)
