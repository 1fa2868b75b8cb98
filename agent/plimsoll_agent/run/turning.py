"""What a later turn of a loop does that no turn so far did: layers that are trained from epoch 12 on, larger pictures, a loss that begins at step 5,000.

It is read from the text: conditions on the variable of a loop around the step, in that loop and in functions of the script that get the variable,
whose answer a later turn changes. Nothing of the script runs for it. Branches that only tell something, save, or set a rate count for nothing, and
neither do remainders, which come again (see `intervals`).
"""

from __future__ import annotations

import ast
import functools
import itertools
import operator
import re
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple

from plimsoll_agent import source
from plimsoll_agent.run import extent, frames, hooks, trainers
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType, FrameType

    from plimsoll_agent.kinds import Line

MOST_TURNS = 1024
"""Of a loop that are looked at one by one; of a longer one those beside the numbers in the condition."""
MOST_CALLS = 3
"""So deep functions are followed that hand the variable on."""
MOST_CONDITIONS = 400
MOST_MEMBERS = 32
"""Of a list whose members are looked at one by one."""
_HARMLESS_CALLS = extent.TELLS | {"close", "set_epoch", "barrier", "flush", "synchronize", "exit", "empty_cache", "collect", "item", "state_dict", "dump", "savefig", "time"}
_RATES = re.compile(
    r"(^|[_.\W])(lrs?|rates?|learning_rate|momentum|decay|wd|lambda\w*|lam|alpha|beta|gamma|eta|tau|eps\w*|temp|temperature|coefs?|coeffs?|sched\w*|schedul\w*"
    r"|warm\w*|prob|best\w*|patience|weight|weights|ckpt\w*|checkpoint\w*|save\w*|saving|log\w*|logger|writer)($|[_.\W])",
    re.IGNORECASE,
)
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_CHOICES: dict[str, Callable[[Any], Any]] = {"max": max, "next": operator.itemgetter(0), "sum": sum, "min": min}
_CONTAINERS = (list, tuple, set, frozenset, dict, range)


class Turning(NamedTuple):
    """One such condition."""

    line: Line
    name: str
    """The variable of the loop,"""
    turn: int
    """the turn, from 1, in which its answer is another one,"""
    now: int
    """the one that the run is in,"""
    turns: int | None
    """and how many the loop has."""
    steps_a_turn: int | None
    """Of the training; 0 where a data loader feeds them and may end early; None where nobody knows."""
    is_stage: bool = False
    """The steps use the variable by themselves, in a loop that begins at `line`, and the last turn may be the largest."""
    raises: bool = False
    """The script raises an error then, and does nothing more."""

    @property
    def to_come(self) -> int:
        """Turns until then."""
        return self.turn - self.now


@guarded
def ahead(has_loader: bool) -> list[Turning]:
    """Those of the loops around the step. `has_loader`: a data loader feeds the step, in a loop that may be a library's."""
    found: dict[tuple[str, int], Turning] = {}
    inside: list[FrameType] = []
    callbacks, of_trainers = trainers.counters()
    counted: list[tuple[extent.Numbered, int | None]] = [(it, (0 if has_loader else None) if it.feeds else 1) for it in of_trainers]
    read: set[CodeType] = set()
    steps: int | None = 0 if has_loader else 1
    for frame in extent.users():
        loops = extent.numbered_loops(frame)
        stages = [it.stage if it.sets_sizes or not has_loader else None for it in extent.loops_around(frame)]
        for counter in extent.counters(frame, loops):
            _add(found, read, frame, inside, counter, 1)
            counted.append((counter, 1))
        for loop, stage in zip(loops, stages):
            if stage is not None:
                line, turns = stage["line"], stage["turns"]
                found[line["file"], line["line"]] = Turning(line, stage["name"], turns, stage["turn"], turns, steps, is_stage=True)
            if loop.done is not None and not loop.feeds:
                _add(found, read, frame, inside, loop, steps)
                counted.append((loop, steps))
            if not has_loader:
                steps = steps * loop.turns if steps is not None and loop.turns is not None else None
        inside.append(frame)
    read.update(it.f_code for it in inside)
    for loop, steps in counted:
        found_by = hooks.of(_names(loop.name), loop.now, read, callbacks) if loop.name else ()
        conditions = itertools.chain.from_iterable(_Text(it.name, it.known, set()).conditions(it.tree, it.code, 0) for it in found_by)
        _add_those(found, conditions, loop, steps)
    return list(found.values())


def _add(
    found: dict[tuple[str, int], Turning], read: set[CodeType], frame: FrameType, inside: list[FrameType], loop: extent.Numbered, steps_a_turn: int | None
) -> None:
    """What a loop of `frame` has in its text, and in the functions that it called: those `inside` are running."""
    conditions = _Text(loop.name, extent.Variables(frame).value, read).conditions(loop.node, frame.f_code, 0)
    for running in inside:
        variables, tree = extent.Variables(running), source.of_function(running.f_code)
        for name in _same_there(tree, variables, loop):
            conditions = itertools.chain(conditions, _Text(name, variables.value, read).conditions(tree, running.f_code, 0))
    _add_those(found, conditions, loop, steps_a_turn)


def _add_those(found: dict[tuple[str, int], Turning], conditions: Iterable[_Condition], loop: extent.Numbered, steps_a_turn: int | None) -> None:
    done = loop.done or 0
    last = loop.now + loop.turns - done - 1 if loop.turns is not None else None
    for condition in conditions:
        code, line = condition.code, condition.line
        place = code.co_filename, line
        known = found.get(place)
        then = condition.first_change(loop.now - done, loop.now, last) if known is None or known.name == loop.name else None
        if then is not None and (known is None or then - loop.now < known.to_come):
            at = frames.with_text({"file": code.co_filename, "line": line, "function": code.co_name})
            found[place] = Turning(at, loop.name, done + 1 + then - loop.now, done + 1, loop.turns, steps_a_turn, raises=not condition.matters(condition.value(then)))


def _names(name: str) -> set[str]:
    """What functions that get the variable of a loop call it."""
    own = name.rpartition(".")[2]
    return {own, "epoch", "current_epoch"} if "epoch" in own or own in ("e", "ep") else {own} if 4 <= len(own) else set()


def _same_there(tree: ast.AST, variables: extent.Variables, loop: extent.Numbered) -> set[str]:
    """What a running function calls the variable of a loop: `self.current_epoch`, which has the same value."""
    own = loop.name.rpartition(".")[2]
    nodes = (it for it in ast.walk(tree) if isinstance(it, (ast.Name, ast.Attribute)) and own in (it.id if isinstance(it, ast.Name) else it.attr))
    names = {ast.unparse(it): it for it in nodes if len(own) >= 4}
    return {name for name, node in names.items() if type(variables.value(node)) is int and variables.value(node) == loop.now}


class _Condition(NamedTuple):
    code: CodeType
    line: int
    value: Callable[[int], Any]
    """Its answer, if the variable has that value; None if nobody knows."""
    numbers: list[int]
    """Those that it compares with."""
    matters: Callable[[Any], bool]
    """Whether what comes with this answer may take memory,"""
    raises: Callable[[Any], bool] = lambda answer: False
    """or at least raises an error."""
    counts_on: bool = False
    """What comes with it goes on from what came with it before: `stage += 1`, `sizes.pop(0)`."""
    comes_again: bool = False
    """Each few turns."""

    def first_change(self, first: int, now: int, last: int | None) -> int | None:
        """The first value after `now` for which the answer is one that no value from `first` on had, or with which something goes on."""
        end = now + MOST_TURNS if last is None else last
        if end - now <= MOST_TURNS or self.comes_again:
            later: Iterable[int] = range(now + 1, min(end, now + MOST_TURNS) + 1)
        else:
            beside = {number + by for number in self.numbers for by in (-1, 0, 1, 2)}
            later = sorted(it for it in beside if now < it and (last is None or it <= last))
        seen = {self.value(it) for it in range(max(first, now - MOST_TURNS), now + 1)}
        for it in later:
            answer = self.value(it)
            is_new = answer not in seen or self.counts_on and answer is True and self.value(it - 1) is False
            if answer is not None and is_new and (self.matters(answer) or self.raises(answer)):
                return it
        return None


class _Text:
    """Code that has the variable under this name, and `known`, which says what other expressions stand for. Functions that are looked into are
    added to those that were `read`."""

    def __init__(self, name: str, known: Callable[[Any], Any], read: set[CodeType]) -> None:
        self._name, self._known, self._read = name, known, read

    def conditions(self, tree: Any, code: CodeType, depth: int) -> Iterator[_Condition]:
        """Those in the code, and in the functions that it gives the variable to."""
        rates: set[int] = set()
        # What is around comes before what it is around.
        for node in ast.walk(tree):
            if isinstance(node, ast.For) and id(node) not in rates and (members := self._members(node)):
                rates.update(id(it) for it in ast.walk(node))
                for bound in members:
                    yield from self._with(bound).conditions(ast.Module(body=node.body, type_ignores=[]), code, depth)
            elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and _sets_rates(node):
                rates.update(id(it) for it in ast.walk(node))
            if isinstance(node, (ast.If, ast.IfExp)) and id(node) not in rates and (self._asks(node.test) or self._grows_each_few_turns(node, code)):
                yield self._of_branches(node, code)
            elif isinstance(node, ast.Assert) and self._asks(node.test):
                holds = functools.partial(self._value, node.test)
                yield _Condition(code, node.lineno, holds, self._numbers(node.test), lambda answer: False, lambda answer: answer is False)
            elif isinstance(node, ast.Subscript) and id(node) not in rates and isinstance(node.ctx, ast.Load) and self._asks(node.slice):
                yield from self._of_table(node, code)
            elif isinstance(node, (ast.Subscript, ast.Call)) and id(node) not in rates and self._chooses(node):
                yield _Condition(code, node.lineno, functools.partial(self._value, node), [], lambda it: type(it) is int)
            elif isinstance(node, ast.Call) and depth < MOST_CALLS and extent.name_of(node.func) not in extent.TELLS and id(node) not in rates:
                yield from self._of_function(node, depth)

    def _members(self, loop: ast.For) -> list[dict[str, Any]]:
        """What the target of a loop over a short list that is known stands for, in each turn: `for since, size in schedule: if epoch >= since`."""
        through: Any = loop.iter
        while _calls(through, ("reversed", "sorted", "list", "tuple")) and through.args:
            through = through.args[0]
        is_of_items = isinstance(through, ast.Call) and extent.name_of(through.func) == "items" and isinstance(through.func, ast.Attribute)
        members = self._known(through.func.value) if is_of_items else self._value(through, 0)
        if type(members) is dict:
            members = list(members.items() if is_of_items else members)
        return list(_bound(loop.target, members)) if type(members) in (list, tuple) and len(members) <= MOST_MEMBERS else []

    def _asks(self, test: Any) -> bool:
        return not _comes_again(test) and any(map(self._is_it, ast.walk(test)))

    def _grows_each_few_turns(self, node: Any, code: CodeType) -> bool:
        """`if epoch % 10 == 0: size *= 2`; a counter goes on by one."""
        if not isinstance(node, ast.If) or not _comes_again(node.test) or not any(map(self._is_it, ast.walk(node.test))):
            return False
        added = [it for it in node.body if isinstance(it, ast.AugAssign) and isinstance(it.op, (ast.Add, ast.Mult)) and _counts_on(it, code, self._takes_batch)]
        return any(isinstance(it.value, ast.Constant) and type(it.value.value) is int and it.value.value > 1 and type(self._known(it.target)) is int for it in added)

    def _chooses(self, node: Any) -> bool:
        """`[size for since, size in schedule if since <= epoch][-1]`, or the largest of them."""
        chosen_from = node.value if isinstance(node, ast.Subscript) else node.args[0] if _calls(node, _CHOICES) and node.args else None
        return isinstance(chosen_from, (ast.ListComp, ast.GeneratorExp)) and any(self._asks(it) for each in chosen_from.generators for it in each.ifs)

    def _is_it(self, node: Any) -> bool:
        return isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) == self._name

    def _hands_on(self, node: Any) -> bool:
        return self._is_it(node) or _calls(node, ("int",)) and len(node.args) == 1 and self._is_it(node.args[0])

    def _of_branches(self, node: Any, code: CodeType) -> _Condition:
        def answer(at: int) -> Any:
            # What is not known does not come.
            return bool(self._value(node.test, at))

        def matters(answer: Any) -> bool:
            if isinstance(node, ast.IfExp):
                return self._is_more(node, answer)
            # What follows a branch that leaves is its other one.
            follows = not answer and not node.orelse and isinstance(node.body[-1], (ast.Return, ast.Continue))
            return any(map(_takes_memory, node.body if answer or follows else node.orelse)) or follows and isinstance(node.body[-1], ast.Continue)

        def raises(answer: Any) -> bool:
            branch = [] if isinstance(node, ast.IfExp) else node.body if answer else node.orelse
            return any(isinstance(it, ast.Raise) for it in branch)

        counts_on = isinstance(node, ast.If) and any(_counts_on(it, code, self._takes_batch) for it in node.body)
        return _Condition(code, node.lineno, answer, self._numbers(node.test), matters, raises, counts_on, _comes_again(node.test))

    def _takes_batch(self, call: ast.Call) -> bool:
        """`next(iter(loader))`, or `next(batches)` where that is the iterator of a loader, or a generator that has one."""
        through = call.args[0] if call.args else None
        if _calls(through, ("iter",)):
            return True
        batches = self._known(through)
        frame = getattr(batches, "gi_frame", None) if isinstance(batches, GeneratorType) else None
        return any(type(it).__module__.startswith("torch.utils.data.") for it in (batches, *(frames.variables(frame).values() if frame else ())))

    def _is_more(self, node: ast.IfExp, answer: Any) -> bool:
        """Whether a value that is chosen then may be more than the one that is chosen now."""
        then, now = (node.body, node.orelse) if answer else (node.orelse, node.body)
        return _is_larger(self._known(then), self._known(now))

    def _of_table(self, node: ast.Subscript, code: CodeType) -> Iterator[_Condition]:
        """`sizes[epoch]`, whose entries become larger."""
        table = self._known(node.value)
        table = self._written_out(node.value) if table is None else table
        if type(table) not in (list, tuple, dict) or not table or len(table) > MOST_TURNS:
            return

        def entry(at: int) -> Any:
            key = self._value(node.slice, at)
            try:
                return table[key] if type(key) is int else None
            except (KeyError, IndexError):
                return None

        values = list(table.values()) if isinstance(table, dict) else list(table)
        keys = list(table) if isinstance(table, dict) else []
        if all(type(it) is int for it in (*values, *keys)) and max(values) <= 1 << 24:
            yield _Condition(code, node.lineno, entry, keys, lambda it: it == max(values))

    def _written_out(self, node: Any) -> Any:
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, RecursionError):
            return None

    def _of_function(self, call: ast.Call, depth: int) -> Iterator[_Condition]:
        places = [i for i, it in enumerate(call.args) if self._hands_on(it)]
        words = [it.arg for it in call.keywords if it.arg and self._hands_on(it.value)]
        if not places and not words:
            return
        called = self._known(call.func)
        owner = getattr(called, "__self__", called)
        function = getattr(called, "__func__", called)
        if called is None and isinstance(call.func, ast.Attribute):
            owner = self._known(call.func.value)
            function = _of_class(type(owner), call.func.attr)
        elif isinstance(called, type):
            owner, function = None, vars(called).get("__init__")
        elif not hasattr(function, "__code__"):
            # A network, or another object that is called.
            function = _of_class(type(called), "forward") or _of_class(type(called), "__call__")
        if function is not called:
            places = [it + 1 for it in places]
        code: CodeType | None = getattr(function, "__code__", None)
        if code is None or not frames.is_users(code.co_filename):
            return
        self._read.add(code)
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        names = [parameters[it] for it in places if it < len(parameters)] + [it for it in words if it in parameters]
        tree = source.of_function(code)
        for name in names:
            inner = _Text(name, extent.VariablesOfACall(function, owner if function is not called else None).value, self._read)
            yield from inner.conditions(tree, code, depth + 1)

    def _numbers(self, test: Any) -> list[int]:
        found: list[int] = []
        for it in ast.walk(test):
            if isinstance(it, ast.Compare):
                for side in (it.left, *it.comparators):
                    value = None if any(self._is_it(part) for part in ast.walk(side)) else self._value(side, 0)
                    values = list(value)[:64] if isinstance(value, _CONTAINERS) else [value]
                    found += [int(each) for each in values if isinstance(each, (int, float)) and abs(each) < 1 << 40]
        return found

    def _value(self, node: Any, at: int) -> Any:
        """What an expression comes to, if the variable has that value. None if no more is known without running code."""
        if self._is_it(node):
            return at
        if isinstance(node, ast.BoolOp):
            given = [self._value(it, at) for it in node.values]
            # What nobody knows decides nothing here.
            known = [bool(it) for it in given if it is not None]
            return None if not known else all(known) if isinstance(node.op, ast.And) else any(known)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self._value(node.operand, at)
            return None if inner is None else not inner
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self._value(node.operand, at)
            return -inner if type(inner) in (int, float) else None
        if isinstance(node, ast.Compare):
            return self._compared(node, at)
        if isinstance(node, ast.BinOp):
            return extent.computed(node.op, self._value(node.left, at), self._value(node.right, at))
        if isinstance(node, ast.Call) and extent.name_of(node.func) == "int" and len(node.args) == 1:
            inner = self._value(node.args[0], at)
            return int(inner) if type(inner) in (int, float) else None
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            members = [self._value(it, at) for it in node.elts]
            return None if None in members else members
        if isinstance(node, ast.Call) and extent.name_of(node.func) == "range" and not node.keywords:
            ends = [self._value(it, at) for it in node.args]
            return range(*ends) if 1 <= len(ends) <= 3 and all(type(it) is int for it in ends) and 0 not in ends[2:] else None
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self._of_comprehension(node, at)
        if _calls(node, _CHOICES) and len(node.args) == 1 and not node.keywords:
            members = self._value(node.args[0], at)
            are_numbers = type(members) is list and members and all(type(it) is int for it in members)
            return _CHOICES[node.func.id](members) if are_numbers else None
        if isinstance(node, ast.Subscript) and isinstance(node.value, (ast.ListComp, ast.List, ast.Tuple)):
            members, place = self._value(node.value, at), self._value(node.slice, at)
            is_there = type(members) is list and type(place) is int and -len(members) <= place < len(members)
            return members[place] if is_there else None
        return self._known(node)

    def _of_comprehension(self, node: Any, at: int) -> list[Any] | None:
        """What it has, of one loop over what is known."""
        (loop, *more), res = node.generators, []
        through = self._value(loop.iter, at)
        if more or type(through) not in (list, tuple, range) or len(through) > MOST_TURNS:
            return None
        for bound in _bound(loop.target, through):
            inside = self._with(bound)
            if all(inside._value(it, at) for it in loop.ifs):
                res.append(inside._value(node.elt, at))
        return res

    def _with(self, bound: dict[str, Any]) -> _Text:
        return _Text(self._name, functools.partial(self._known_beside, bound), self._read)

    def _known_beside(self, bound: dict[str, Any], node: Any) -> Any:
        return bound[node.id] if isinstance(node, ast.Name) and node.id in bound else self._known(node)

    def _compared(self, node: ast.Compare, at: int) -> bool | None:
        left = self._value(node.left, at)
        for comparison, side in zip(node.ops, node.comparators):
            right = self._value(side, at)
            if isinstance(comparison, (ast.In, ast.NotIn)):
                if type(left) is not int or type(right) not in _CONTAINERS:
                    return None
                holds = (left in right) == isinstance(comparison, ast.In)
            elif type(left) not in (int, float) or type(right) not in (int, float):
                return None
            else:
                holds = bool(_COMPARISONS[type(comparison)](left, right))
            if not holds:
                return False
            left = right
        return True


def _bound(target: Any, members: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """What the names in the target of a loop stand for, in each of its turns."""
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    for member in members:
        values = list(member) if isinstance(target, ast.Tuple) and isinstance(member, (list, tuple)) else [member]
        yield {it.id: value for it, value in zip(names, values) if isinstance(it, ast.Name)}


def _calls(node: Any, names: Iterable[str]) -> bool:
    """Whether it calls one of these built-in functions."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _of_class(kind: type, name: str) -> Any:
    return next((vars(it)[name] for it in kind.__mro__ if name in vars(it)), None)


def _is_larger(then: Any, now: Any) -> bool:
    """Whether what comes then may take more. Of what is not known: yes. A fraction is a rate."""
    if type(then) is float or type(now) is float:
        return False
    if type(then) is int and type(now) is int:
        return then > now
    return not (then is False and now is True)


def _sets_rates(node: Any) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return all(_RATES.search(ast.unparse(it)) for it in targets)


def _is_harmless(call: ast.Call) -> bool:
    name = extent.name_of(call.func)
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    return name in _HARMLESS_CALLS or bool(_RATES.search(name) or name == "step" and "sched" in owner.lower())


def _takes_memory(statement: ast.stmt) -> bool:
    """Whether a statement may do more than tell, save, set a rate or leave."""
    if isinstance(statement, (ast.Pass, ast.Break, ast.Continue, ast.Raise, ast.Assert, ast.Delete, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)):
        return False
    if isinstance(statement, ast.Return):
        return statement.value is not None and not (isinstance(statement.value, ast.Constant) and type(statement.value.value) in (float, bool, type(None)))
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and not _is_harmless(statement.value)
    if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        value = statement.value
        is_fraction = isinstance(value, ast.Constant) and type(value.value) in (float, bool, str, type(None)) and not _is_flag(statement)
        return not _sets_rates(statement) and not is_fraction
    inner = [it for name in ("body", "orelse", "finalbody") for it in getattr(statement, name, [])]
    inner += [it for handler in getattr(statement, "handlers", []) for it in handler.body]
    return any(map(_takes_memory, inner)) if inner else True


def _comes_again(test: ast.AST) -> bool:
    """Whether a condition asks for a remainder, and so holds each few turns."""
    return any(isinstance(it, ast.BinOp) and isinstance(it.op, ast.Mod) for it in ast.walk(test))


def _counts_on(statement: ast.stmt, code: CodeType, is_of_loader: Callable[[ast.Call], bool]) -> bool:
    """Whether a statement goes on from what it did the last time, sets no rate, and does not only count for what the script tells. `is_of_loader`
    says of a call of `next` that it takes a batch of a data loader."""
    if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and _sets_rates(statement):
        return False
    if isinstance(statement, ast.AugAssign):
        target = statement.target
        return not isinstance(target, ast.Name) or extent.uses(source.tree(code.co_filename), target.id, is_compared=True)
    calls = [it for it in ast.walk(statement) if isinstance(it, ast.Call)]
    # `with torch.no_grad(): x = next(batches)`: the next batch of an evaluation is as large as the one before.
    evaluates = isinstance(statement, ast.With) and any(extent.name_of(it.func) in ("no_grad", "inference_mode") for it in calls)
    goes_on = (it for it in calls if extent.name_of(it.func) in ("pop", "popleft") or _calls(it, ("next",)) and not evaluates and not is_of_loader(it))
    return any(goes_on)


def _is_flag(statement: Any) -> bool:
    """`p.requires_grad = True`."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return any("requires_grad" in ast.unparse(it) for it in targets) and getattr(statement.value, "value", None) is True
