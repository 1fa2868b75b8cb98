"""How many steps the script's own loops come to, of which a run sees few: read in the text of the loops around a step, and in what stands in
their variables. No code of the script runs for it, and nothing of it is kept.
"""

from __future__ import annotations

import ast
import functools
import operator
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from plimsoll_agent import source
from plimsoll_agent.run import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType, FrameType

    from plimsoll_agent.kinds import Line, Named

MOST_FRAMES = 60
STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
COMPREHENSIONS: dict[str, Any] = {"<listcomp>": ast.ListComp, "<setcomp>": ast.SetComp, "<dictcomp>": ast.DictComp, "<genexpr>": ast.GeneratorExp}
"""The frames that they have, if any."""

NOT_KNOWN: Named = {"epochs": None, "steps": None, "turns": None, "stage": None, "anew": None}
"""Of the loops around a step."""

Where = list["tuple[int, CodeType, int]"]
"""The functions of the user's that ran, the innermost first: the identity of each frame, its code, its line."""

SIZED = (list, tuple, dict, set, frozenset, range, str)
"""What says its length without running code of the script's."""

WRAPPERS = {"enumerate", "tqdm", "trange", "track", "iter", "reversed", "sorted", "list", "islice"}

Loader = "loader"

MOST_STAGES = 20
"""A loop that turns more often counts steps."""

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}
_SIZES = frozenset(("zeros", "ones", "empty", "rand", "randn", "arange"))
_OF_NUMBERS = frozenset(("min", "max", "int", "round", "floor", "ceil", "len", "abs"))
_NO_STAGES = {"_", "e", "ep", "run", "trial", "seed", "repeat", "rep"}
TELLS = {"print", "log", "info", "debug", "warning", "write", "format", "set_description", "set_postfix", "add_scalar", "save", "append", "record", "manual_seed", "seed"}


class Loop:
    """A loop around the step: how often it turns (None if that is not known), and how often it has, as far as its variable says."""

    __slots__ = ("anew", "counted", "done", "feeds", "line", "lines", "may_add_up", "name", "sets_sizes", "stage", "turns")

    def __init__(self, turns: int | None, done: int | None, feeds: bool, counted: tuple[int, int] | None = None) -> None:
        self.turns, self.done, self.feeds = turns, done, feeds
        self.stage: Named | None = None
        """Of a loop around the one with the steps, whose variable the steps use: its line, its variable, its turns and which one it is."""
        self.sets_sizes = False
        """Its variable sets the size of something in its steps."""
        self.anew = False
        """Each turn of it makes an optimizer, and so most likely a network: what one turn leaves, the next one has beside its own."""
        self.may_add_up = True
        self.lines = (0, 0)
        """Where it begins and ends."""
        self.line: Line | None = None
        self.name = ""
        """Its variable, or its condition."""
        self.counted = counted
        """Of `while step < 1000` around another loop that counts `step`: that number, and how far it is."""


def here() -> Where:
    """Where this is called."""
    found: Where = []
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        if frames.is_users(frame.f_code.co_filename):
            found.append((id(frame), frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return found


def of_this_step(steps: int, before: tuple[int, int] | None = None, made: Iterable[Where] = ()) -> tuple[Named, int | None]:
    """`epochs`, if the step stands in a loop over a data loader: how often that loop begins; `steps` in all, of which so many are done;
    and `turns` of the innermost of several loops, which may be an epoch. What is not known is None.

    Also how many turns the loops have done, or how far the script has counted. With this and the steps `before`, of an earlier look, turns that
    came before the first step count for nothing: a replay memory is filled first, or a run goes on from a checkpoint.

    And `anew`: the innermost loop around that of the steps whose turn made one of the optimizers, which were `made` there: its `line`, its
    variable, its `turns`, the `turn` it is in, and how many turns the loops inside of it have together, without those of a data loader."""
    loops: list[Loop] = []
    trainers: int | None = None
    frame: FrameType | None = sys._getframe(1)
    called: FrameType | None = None
    inside = {place for where in made for place in where}
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        if frames.is_users(frame.f_code.co_filename):
            loops += loops_around(frame, called, {line for identity, code, line in inside if identity == id(frame) and code is frame.f_code})
            called = frame
        elif trainers is None:
            trainers = _of_a_trainer(frame)
        frame = frame.f_back
    if trainers is not None:
        # Its own loop is a library's, and it makes the optimizer.
        return {**NOT_KNOWN, "steps": trainers, "anew": _anew(loops, 0, None)}, None
    counted = next((it.counted for it in loops[1:] if it.counted is not None), None)
    if counted is not None:
        end, now = counted
        # At this moment the turn of this step is mostly not counted yet.
        in_all: int | None = end * steps // (now + 1)
        if before is not None and before[0] < steps and before[1] is not None and before[1] < now < end:
            in_all = steps + (end - now - 1) * (steps - before[0]) // (now - before[1])
        return {**NOT_KNOWN, "steps": in_all}, now
    feeding = [i for i, it in enumerate(loops) if it.feeds]
    if feeding:
        stage = next((it.stage for it in loops[feeding[-1] + 1 :] if it.sets_sizes), None)
        return {**NOT_KNOWN, "epochs": _product(loops[feeding[-1] + 1 :]), "stage": stage, "anew": _anew(loops, feeding[-1] + 1, feeding[-1] + 1)}, None
    turns = loops[0].turns if 1 < len(loops) else None
    in_all, done = _steps_in_all(loops, steps, before) if loops else (None, None)
    stage = next((it.stage for it in loops if it.stage is not None), None)
    return {"epochs": None, "steps": in_all, "turns": turns, "stage": stage, "anew": _anew(loops, 1, 0)}, done


def _anew(loops: list[Loop], first: int, inner: int | None) -> Named | None:
    """`first`: the innermost loop that may be one; `inner`: the first whose turns count inside of it, None where a library's loop has the steps."""
    if any(it.anew for it in loops[:first]):
        return None  # A step, or the first of all, makes its own.
    at = next((i for i in range(first, len(loops)) if loops[i].anew), None)
    if at is None or loops[at].turns == 1:
        return None
    it = loops[at]
    turn = it.done + 1 if it.done is not None and (it.turns is None or it.done < it.turns) else 1
    return {"line": it.line, "name": it.name, "turns": it.turns, "turn": turn, "inside": _product(loops[inner:at]) if inner is not None else None}


def _product(loops: list[Loop]) -> int | None:
    res = 1
    for it in loops:
        if it.turns is None:
            return None
        res *= it.turns
    return res


def _steps_in_all(loops: list[Loop], steps: int, before: tuple[int, int] | None) -> tuple[int | None, int | None]:
    """(steps, turns that are done). A step may take several turns of the innermost loop: gradients are accumulated."""
    turns, done, inner = _product(loops), 0, 1
    if turns is None:
        return None, None
    for i, it in enumerate(loops):
        if it.done is None or it.turns is None:
            return turns, None
        done += (it.done + (i == 0)) * inner
        inner *= it.turns
    if before is not None and before[0] < steps and before[1] < done <= turns:
        return steps + (turns - done) * (steps - before[0]) // (done - before[1]), done
    return turns * steps // done if 0 < steps < done else turns, done


def loops_around(frame: FrameType, called: FrameType | None = None, made_at: Iterable[int] = ()) -> list[Loop]:
    """The innermost first. `called` is the frame of the script's that this one called; `made_at`: lines that made, or called what made, an optimizer."""
    code = frame.f_code
    if code.co_name in COMPREHENSIONS:
        return []  # What it goes through stands in the frame around it.
    found = [it for it in loops_in(code.co_filename) if it.lineno <= frame.f_lineno <= (it.end_lineno or it.lineno)]
    if code.co_name != "<module>":
        found = [it for it in found if code.co_firstlineno <= it.lineno]
    variables = Variables(frame)
    found.sort(key=lambda loop: -loop.lineno)
    loops = [_loop(it, variables) for it in found]
    for loop, node in zip(loops, found):
        loop.stage = _stage(node, found[0], loop, variables, frame)
    for loop, node in zip(loops, found):
        # A loop that another try leaves with `break` makes nothing twice that stays.
        loop.may_add_up = not isinstance(node, ast.While) and not any(isinstance(it, ast.Break) for it in _own_statements(node))
        loop.name, loop.lines = ast.unparse(node.test if isinstance(node, ast.While) else node.target), (node.lineno, node.end_lineno or node.lineno)
    loops = _of_a_comprehension(frame, called, variables) + loops
    for loop in loops:
        first, last = loop.lines
        loop.anew = loop.may_add_up and any(first <= it <= last for it in made_at)
        loop.line = frames.with_text({"file": code.co_filename, "line": first, "function": code.co_name})
    return loops


class Numbered(NamedTuple):
    """A loop around the step whose turns are counted by a variable."""

    node: Any
    name: str
    """The variable,"""
    now: int
    """what it is now,"""
    done: int | None
    """so many turns ago it began; None where that is not known,"""
    turns: int | None
    """of so many."""
    feeds: bool
    """It goes through a data loader."""


def numbered_loops(frame: FrameType) -> list[Numbered]:
    """Those of a frame around its line, the innermost first. Of one that nothing counts `now` is -1, and `done` None."""
    code, variables = frame.f_code, Variables(frame)
    around = [it for it in loops_in(code.co_filename) if it.lineno <= frame.f_lineno <= (it.end_lineno or it.lineno)]
    if code.co_name != "<module>":
        around = [it for it in around if code.co_firstlineno <= it.lineno]
    found = []
    for node in sorted(around, key=lambda it: -it.lineno):
        loop = _loop(node, variables)
        counter: Any = node.test.left if isinstance(node, ast.While) and isinstance(node.test, ast.Compare) else getattr(node, "target", None)
        counter = counter.elts[0] if isinstance(counter, ast.Tuple) and counter.elts else counter
        now = variables.value(counter) if isinstance(counter, (ast.Name, ast.Attribute)) else None
        # The bound of `while` is the number that it counts to.
        done = now if isinstance(node, ast.While) and loop.turns is not None else loop.done
        if type(now) is not int or done is None:
            found.append(Numbered(node, "", -1, None, loop.turns, loop.feeds))
        else:
            found.append(Numbered(node, ast.unparse(counter), now, done, loop.turns, loop.feeds))
    return found


def counters(frame: FrameType, loops: list[Numbered]) -> list[Numbered]:
    """Variables that count steps by themselves: `global_step += 1` somewhere in the loops of a frame. They are taken to have begun with 0."""
    if not loops:
        return []
    outermost, variables = loops[-1].node, Variables(frame)
    one = [it for it in ast.walk(outermost) if isinstance(it, ast.AugAssign) and isinstance(it.op, ast.Add) and isinstance(it.value, ast.Constant) and it.value.value == 1]
    targets = {ast.unparse(it.target): it.target for it in one if isinstance(it.target, (ast.Name, ast.Attribute))}
    numbers = {name: variables.value(target) for name, target in targets.items() if name not in {it.name for it in loops}}
    return [Numbered(outermost, name, now, now, None, False) for name, now in numbers.items() if type(now) is int and now >= 0]


def users() -> Iterator[FrameType]:
    """The frames of the script, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MOST_FRAMES):
        if frame is None:
            return
        if frames.is_users(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _own_statements(loop: Any) -> list[Any]:
    """What stands in a loop, and in no loop or function inside of it."""
    found: list[Any] = []
    todo = list(loop.body)
    while todo:
        it = todo.pop()
        found.append(it)
        if not isinstance(it, (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            todo += ast.iter_child_nodes(it)
    return found


def _of_a_comprehension(frame: FrameType, called: FrameType | None, variables: Variables) -> list[Loop]:
    """`[train(fold) for fold in range(5)]`: a loop of its own, which until Python 3.12 has a frame of its own."""
    if called is None:
        return []
    kind, inside = COMPREHENSIONS.get(called.f_code.co_name), variables
    if kind is None and sys.version_info < (3, 12):
        return []

    def holds(node: Any) -> bool:
        if not node.lineno <= frame.f_lineno <= (node.end_lineno or node.lineno):
            return False
        if kind is not None:
            return type(node) is kind
        return any(isinstance(it, ast.Call) and name_of(it.func) == called.f_code.co_name for it in ast.walk(node))

    found = [it for it in comprehensions_in(frame.f_code.co_filename) if holds(it)]
    if not found:
        return []
    innermost = max(found, key=lambda it: (it.lineno, it.col_offset))
    if kind is not None:
        inside = Variables(called)
    loops = [_for(it.target, it.iter, variables, inside) for it in reversed(innermost.generators)]
    for loop, it in zip(loops, reversed(innermost.generators)):
        loop.name, loop.lines = ast.unparse(it.target), (innermost.lineno, innermost.end_lineno or innermost.lineno)
    return loops


def _stage(node: Any, inner: Any, loop: Loop, variables: Variables, frame: FrameType) -> Named | None:
    """Steps whose size may follow from which turn of a loop around theirs it is: `for size in (64, 128, 256):` around `for step in range(200):`."""
    if not isinstance(node, ast.For) or not isinstance(node.target, ast.Name) or loop.turns is None:
        return None
    name, done = node.target.id, loop.done
    now = variables.value(node.target)
    last = now + loop.turns - done - 1 if type(now) is int and done is not None else None
    sets_sizes = loop.sets_sizes = _may_become_larger(node, now, last, variables)
    if not sets_sizes and (MOST_STAGES < loop.turns or node is inner):
        return None
    if done is None and isinstance(node.iter, (ast.List, ast.Tuple)):
        members = [variables.value(it) for it in node.iter.elts]
        now = variables.value(node.target)
        done = members.index(now) if type(now) in (int, float, str) and now in members else None
    is_epoch = "epoch" in name.lower() or name in _NO_STAGES
    if done is None or loop.turns <= done + 1 or not sets_sizes and (is_epoch or not any(uses(it, name) for it in inner.body)):
        return None
    line = frames.with_text({"file": frame.f_code.co_filename, "line": node.lineno, "function": frame.f_code.co_name})
    return {"line": line, "name": name, "turn": done + 1, "turns": loop.turns}


def _sizes_by(loop: ast.For, name: str) -> tuple[list[Any], dict[str, Any]]:
    """What tells how many turns a loop inside takes, or how large a tensor is, and follows from the variable of a loop: `horizon = 10 + epoch`,
    then `for _ in range(horizon):`. And the variables that are computed from it. Both ends of a range or a slice that move with it leave as
    much between them."""
    computed: dict[str, Any] = {}

    def follows(node: Any) -> bool:
        return node is not None and any(uses(node, it) for it in (name, *computed))

    for it in ast.walk(loop):  # The statements of a block come in their order.
        if isinstance(it, ast.Assign) and follows(it.value) and not _is_made_of_tensors(it.value):
            computed.update({target.id: it.value for target in it.targets if isinstance(target, ast.Name)})
    found: list[Any] = []
    for it in ast.walk(loop):
        if isinstance(it, ast.Slice) and follows(it.lower) != follows(it.upper):
            found.append(it.upper if follows(it.upper) else it)
        if isinstance(it, ast.Call) and it is not loop.iter:
            function = name_of(it.func)
            ends = [end for end in it.args[:2] if follows(end)] if function == "range" else []
            sizes = it.args if function in _SIZES else it.args[:1] if function == "full" else []
            sizes = sizes + [word.value for word in it.keywords if word.arg in ("size", "scale_factor")]
            found += [size for size in sizes if follows(size)] + (ends if len(ends) == 1 else [])
    return found, computed


def _may_become_larger(loop: ast.For, now: Any, last: Any, variables: Variables) -> bool:
    """Whether a size that follows from the variable of a loop may be larger in a later turn than it is now."""
    assert isinstance(loop.target, ast.Name)
    name = loop.target.id
    sizes, computed = _sizes_by(loop, name)

    then = _AtATurn(name, computed, variables)
    for size in sizes:
        first, later = then.value(size, now), then.value(size, last)
        if type(first) not in (int, float) or type(later) not in (int, float) or first < later:
            return True
    return False


class _AtATurn:
    """What an expression comes to where the variable of a loop has another value."""

    def __init__(self, name: str, computed: dict[str, Any], variables: Variables) -> None:
        self._name, self._computed, self._variables = name, computed, variables

    def value(self, node: Any, at: Any, depth: int = 0) -> Any:
        """None if no more is known without running code."""
        if isinstance(node, ast.Name) and node.id == self._name:
            return at
        if isinstance(node, ast.Name) and node.id in self._computed:
            return self.value(self._computed[node.id], at, depth + 1) if depth < 8 else None
        if isinstance(node, ast.BinOp):
            # A remainder says nothing of the turns between two.
            of_both = None if isinstance(node.op, ast.Mod) else (self.value(node.left, at, depth), self.value(node.right, at, depth))
            return computed(node.op, *of_both) if of_both else None
        if isinstance(node, ast.Call) and name_of(node.func) in _OF_NUMBERS and not node.keywords:
            return _of_numbers(name_of(node.func), [self.value(it, at, depth) for it in node.args])
        return self._variables.value(node)


def _of_numbers(function: str, given: list[Any]) -> Any:
    if not given or any(type(it) not in (int, float) for it in given):
        return None
    return min(given) if function == "min" else max(given) if function == "max" else int(given[0]) if function == "int" else None


def _is_made_of_tensors(value: Any) -> bool:
    """A call of more than a function of numbers."""
    return any(isinstance(it, ast.Call) and name_of(it.func) not in _OF_NUMBERS for it in ast.walk(value))


def uses(node: Any, name: str, is_compared: bool = False) -> bool:
    """Whether code does more with a variable than to tell it or to count with it. `is_compared`: to compare it is more."""
    if isinstance(node, ast.Call) and name_of(node.func) in TELLS or isinstance(node, ast.JoinedStr):
        return False
    if not is_compared and (isinstance(node, ast.Compare) or isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)):
        return False
    if isinstance(node, ast.Name):
        return node.id == name and isinstance(node.ctx, ast.Load)
    return any(uses(it, name, is_compared) for it in ast.iter_child_nodes(node))


@functools.lru_cache(maxsize=16)
def loops_in(file: str) -> list[Any]:
    """All loops in the text of a file; none where it cannot be read."""
    return [it for it in ast.walk(source.tree(file)) if isinstance(it, (ast.For, ast.AsyncFor, ast.While))]


@functools.lru_cache(maxsize=16)
def comprehensions_in(file: str) -> list[Any]:
    """The same of comprehensions."""
    return [it for it in ast.walk(source.tree(file)) if isinstance(it, tuple(COMPREHENSIONS.values()))]


def _loop(loop: Any, variables: Variables) -> Loop:
    if isinstance(loop, ast.While):
        end = _bound(loop.test, variables)
        now = variables.value(loop.test.left) if isinstance(loop.test, ast.Compare) else None
        if end is None or not isinstance(now, int) or not _is_counted_inside(loop):
            return Loop(end, None, False)
        return Loop(end, None, False, (end, now))
    return _for(loop.target, loop.iter, variables, variables)


def _for(target: Any, iterated: Any, variables: Variables, inside: Variables) -> Loop:
    """Of `for target in iterated`; what `target` stands for is known `inside`."""
    turns = _turns(iterated, variables)
    target = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
    number = inside.value(target) if isinstance(target, (ast.Name, ast.Attribute)) else None
    first = _first(iterated, variables)
    done = number - first if type(number) is int and first is not None and first <= number else None
    if turns is Loader:
        return Loop(None, done, True)
    return Loop(turns if isinstance(turns, int) else None, done, False)


def _is_counted_inside(loop: ast.While) -> bool:
    """Whether the number in its condition is counted by a loop inside, and so is none of its own turns."""
    name = ast.unparse(loop.test.left) if isinstance(loop.test, ast.Compare) else ""
    inner = (it for it in ast.walk(loop) if it is not loop and isinstance(it, (ast.For, ast.AsyncFor, ast.While)))
    return any(isinstance(it, ast.AugAssign) and ast.unparse(it.target) == name for each in inner for it in ast.walk(each))


def _bound(test: Any, variables: Variables) -> int | None:
    """`while step < 1000`."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Lt, ast.LtE)):
        now, end = variables.value(test.left), variables.value(test.comparators[0])
        if type(now) is int and type(end) is int and now <= end:
            return end
    return None


def _first(iterated: Any, variables: Variables) -> int | None:
    """The number that the variable of a loop begins with, if it counts by one."""
    if not isinstance(iterated, ast.Call):
        return None
    name, arguments = name_of(iterated.func), iterated.args
    if name in ("tqdm", "track") and arguments:
        return _first(arguments[0], variables)
    if name == "range" and len(arguments) == 2:
        begin = variables.value(arguments[0])
        return begin if type(begin) is int else None
    return 0 if name == "enumerate" and len(arguments) == 1 or name in ("range", "trange") and len(arguments) == 1 else None


def _length(numbers: range) -> int | None:
    """None for more than Python counts, as of `range(10**20)`: nobody waits for that end."""
    try:
        return len(numbers)
    except OverflowError:
        return None


def _turns(iterated: Any, variables: Variables) -> Any:
    """How often, or that a data loader says it, or None."""
    if isinstance(iterated, (ast.List, ast.Tuple)):
        return None if any(isinstance(it, ast.Starred) for it in iterated.elts) else len(iterated.elts)
    if isinstance(iterated, ast.Call):
        name, arguments = name_of(iterated.func), iterated.args
        if name in ("range", "trange") and arguments and not any(isinstance(it, ast.Starred) for it in arguments):
            numbers = [variables.value(it) for it in arguments]
            return _length(range(*numbers)) if all(type(it) is int for it in numbers) and 0 not in numbers[2:] else None
        if name == "zip" and arguments:
            each = [_turns(it, variables) for it in arguments]
            known = [it for it in each if isinstance(it, int)]
            return Loader if Loader in each else min(known, default=None)
        if name == "islice" and len(arguments) == 2:
            most = variables.value(arguments[1])
            return most if type(most) is int else None
        if name in WRAPPERS and arguments:
            return _turns(arguments[0], variables)
        if name in ("items", "keys", "values") and isinstance(iterated.func, ast.Attribute):
            return _turns(iterated.func.value, variables)
        return Loader if name and "loader" in name.lower() else None
    return _size(variables.value(iterated))


def _size(value: Any) -> Any:
    for _ in range(3):  # A progress bar has what it counts.
        if type(value) in SIZED:
            return len(value)
        dataloader = sys.modules.get("torch.utils.data.dataloader")
        if dataloader is not None and isinstance(value, (dataloader.DataLoader, dataloader._BaseDataLoaderIter)):
            return Loader
        value = getattr(value, "__dict__", {}).get("iterable")
    return None


def name_of(function: Any) -> str:
    return function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""


class Variables:
    """What names in a frame stand for."""

    def __init__(self, frame: FrameType) -> None:
        self._set(frames.variables(frame), frame.f_globals)

    def _set(self, own: dict[str, Any], around: dict[str, Any]) -> None:
        self._locals, self._globals = own, around

    def by_name(self, name: str) -> Any:
        """None if there is none."""
        return self._locals[name] if name in self._locals else self._globals.get(name)

    def value(self, node: Any) -> Any:
        """None if no more is known without running code."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.by_name(node.id)
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value)
            own = getattr(owner, "__dict__", None) if owner is not None else None
            found = own.get(node.attr) if isinstance(own, dict) else None
            return found if found is not None or owner is None else _of_class(owner if isinstance(owner, type) else type(owner), node.attr)
        if isinstance(node, ast.Subscript):
            owner, key = self.value(node.value), self.value(node.slice)
            return owner.get(key) if type(owner) is dict and type(key) in (str, int) else None
        if isinstance(node, ast.BinOp):
            found = computed(node.op, self.value(node.left), self.value(node.right))
            return found if type(found) is int else None
        if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            inner = self.value(node.args[0])
            if name_of(node.func) == "len" and type(inner) in SIZED:
                return len(inner)
            if name_of(node.func) == "int" and type(inner) in (int, float):
                return int(inner)
        return None


class VariablesOfACall(Variables):
    """Those of a function that does not run: what is around it, and what it would be called on."""

    def __init__(self, function: Any, owner: Any = None) -> None:
        code = function.__code__
        self._set({code.co_varnames[0]: owner} if owner is not None and code.co_argcount else {}, function.__globals__)


def _of_class(kind: type, name: str) -> Any:
    for it in kind.__mro__:
        if name in vars(it):
            value = vars(it)[name]
            return value if type(value) is int or type(value) in SIZED else None
    return None


def computed(operation: ast.operator, left: Any, right: Any) -> Any:
    """What an operation on two numbers gives; None if no number."""
    compute = _ARITHMETIC.get(type(operation))
    if compute is None or type(left) not in (int, float) or type(right) not in (int, float):
        return None
    return None if right == 0 and isinstance(operation, (ast.Div, ast.FloorDiv, ast.Mod)) else compute(left, right)


def _of_a_trainer(frame: FrameType) -> int | None:
    """What the one of transformers says that it will do in all."""
    if frame.f_globals.get("__name__") != "transformers.trainer" or "self" not in frame.f_code.co_varnames:
        return None
    variables = Variables(frame)
    most = getattr(getattr(variables.value(ast.Name("self")), "state", None), "max_steps", None)
    return most if type(most) is int and 0 < most else None
