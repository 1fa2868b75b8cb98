"""Reads from the script's text which ranks it treats unlike others: `batch = 32 if rank == 1 else 16`, `[8, 16, 8, 8][rank]`, `rank % 2`.

The first rank and the last one of a job run. One between them that is named runs as well, since nothing else shows that it differs. Where each
rank reads a file of its own, or its entry of one, the second and the last but one stand for those between.
"""

from __future__ import annotations

import ast
import linecache
from typing import TYPE_CHECKING, Any

from plimsoll_agent import source
from plimsoll_agent.run import extent, frames
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plimsoll_agent.run.recording import Recording

MOST = 4
"""Ranks that are named: each is one more run."""
MOST_FILES = 200
MOST_OF_A_KIND = 8
"""Remainders or machines that are told apart."""
_ITS_NUMBER = {"local_rank", "global_rank", "world_rank", "ddp_rank", "ddp_local_rank", "dp_rank", "process_index", "local_process_index"}
"""What a rank is called, and nothing else is. `rank` may be that of a matrix."""
_ASKS = {"get_rank", "get_node_local_rank", "get_global_rank", "get_local_rank"}
_VARIABLES = {"RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID", "OMPI_COMM_WORLD_RANK"}
_OF_THE_WORLD = {"world_size", "get_world_size", "num_processes", "WORLD_SIZE", "nprocs"}
_LISTS = {"glob", "iglob", "rglob", "listdir", "iterdir", "scandir"}
_READERS = {"open", "memmap", "fromfile", "safe_open", "load", "loadtxt", "genfromtxt", "load_file", "load_from_disk", "load_dataset"}
_READERS |= {"read_text", "read_bytes", "read_csv", "read_parquet", "read_json", "read_table", "read_feather"}
_TESTS = (ast.If, ast.IfExp, ast.While, ast.Assert)


@guarded
def write(recording: Recording, world: int) -> None:
    """Says which ranks the script names, but for the first and the last of so many."""
    named: set[int] = set()
    files = [file for _, file in frames.modules_of_users()]
    for file in files[:MOST_FILES]:
        text = "".join(linecache.getlines(file))
        if "rank" in text.lower() or "process_index" in text:
            named.update(of_text(source.tree(file), world, "distributed" in text or "RANK" in text or "world_size" in text))
    between = sorted(it for it in named if 0 < it < world - 1)[:MOST]
    if between:
        recording.write("named_ranks", ranks=between)


def of_text(tree: ast.AST, world: int, is_distributed: bool = True) -> set[int]:
    """The ranks of `world` that a file names. `is_distributed`: `rank` alone is the number of a process in it."""
    return _Reader(tree, world, is_distributed).named


class _Reader:
    def __init__(self, tree: ast.AST, world: int, is_distributed: bool) -> None:
        self._world, self._is_distributed = world, is_distributed
        nodes = list(ast.walk(tree))
        self._literals = {target.id: it.value for it in nodes if isinstance(it, ast.Assign) for target in it.targets if isinstance(target, ast.Name)}
        self.named: set[int] = set()
        for node in nodes:
            if isinstance(node, ast.Compare):
                self.named.update(self._of_comparison(node))
            elif isinstance(node, ast.Subscript) and self._is_rank(node.slice):
                self.named.update(self._of_table(node.value))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args and self._is_rank(node.args[0]):
                self.named.update(self._of_table(node.func.value))
            elif isinstance(node, ast.Call) and _reads(node) and self._has_rank([*node.args[:1], node.func]):
                self.named.update((1, world - 2))
            elif isinstance(node, _TESTS):
                self.named.update(it for part in ast.walk(node.test) for it in self._of_kinds(part))

    def _is_rank(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            name = _name(node.func)
            asks_environment = name in ("get", "getenv") and bool(node.args) and _constant(node.args[0]) in _VARIABLES
            return name in _ASKS or asks_environment or (name == "int" and len(node.args) > 0 and self._is_rank(node.args[0]))
        if isinstance(node, ast.Subscript):
            return _constant(node.slice) in _VARIABLES
        if isinstance(node, ast.NamedExpr):
            return self._is_rank(node.value)
        name = _name(node).lower()
        return name in _ITS_NUMBER or (name == "rank" and self._is_distributed)

    def _has_rank(self, parts: list[ast.expr]) -> bool:
        """Whether the number of the process is in one of them, or in what a variable there was set to."""
        nodes = [it for part in parts for it in ast.walk(part)]
        nodes += [it for node in nodes if isinstance(node, ast.Name) and node.id in self._literals for it in ast.walk(self._literals[node.id])]
        return any(map(self._is_rank, nodes))

    def _number(self, node: ast.AST) -> int | None:
        """What an expression of numbers and of the number of ranks is."""
        constant = _constant(node)
        if type(constant) is int:
            return constant
        if _name(node.func if isinstance(node, ast.Call) else node) in _OF_THE_WORLD:
            return self._world
        value = extent.computed(node.op, self._number(node.left), self._number(node.right)) if isinstance(node, ast.BinOp) else None
        return value if type(value) is int else None

    def _of_comparison(self, node: ast.Compare) -> Iterator[int]:
        sides = [node.left, *node.comparators]
        for left, comparison, right in zip(sides, node.ops, sides[1:]):
            is_left = self._is_rank(left)
            if not is_left and not self._is_rank(right):
                continue
            other = right if is_left else left
            if isinstance(comparison, (ast.In, ast.NotIn)):
                members = other.elts if isinstance(other, (ast.List, ast.Tuple, ast.Set)) else []
                yield from (it for it in map(self._number, members) if it is not None)
                continue
            number = self._number(other)
            if number is not None:
                yield number
                # The other side of a border: `rank < 2` and `2 <= rank` part 1 from 2, `rank <= 2` and `2 < rank` part 2 from 3.
                if isinstance(comparison, (ast.Lt, ast.GtE, ast.Gt, ast.LtE)):
                    yield number - 1 if isinstance(comparison, (ast.Lt, ast.GtE)) == is_left else number + 1

    def _of_table(self, table: ast.expr) -> Iterator[int]:
        """The first rank with each value of a list or a dict that is written out."""
        table = self._literals.get(table.id, table) if isinstance(table, ast.Name) else table
        if isinstance(table, (ast.List, ast.Tuple)):
            entries: list[tuple[int | None, ast.expr]] = list(enumerate(table.elts))
        elif isinstance(table, ast.Dict):
            entries = [(self._number(key), value) for key, value in zip(table.keys, table.values) if key is not None]
        else:
            if any(isinstance(it, ast.Call) and (_reads(it) or _name(it.func) in _LISTS) for it in ast.walk(table)):
                yield from (1, self._world - 2)
            return
        seen = set()
        for rank, value in entries:
            text = ast.unparse(value)
            if rank is not None and text not in seen:
                seen.add(text)
                yield rank

    def _of_kinds(self, node: ast.AST) -> Iterator[int]:
        """`rank % 2` and `rank // 8` tell kinds of ranks apart."""
        if not isinstance(node, ast.BinOp) or not self._is_rank(node.left):
            return
        number = self._number(node.right)
        if number is None or number < 2:
            return
        if isinstance(node.op, ast.Mod):
            yield from range(1, min(number, MOST_OF_A_KIND))
        elif isinstance(node.op, ast.FloorDiv):
            yield from range(number, self._world, number)


def _reads(node: ast.Call) -> bool:
    """Whether a call reads a file."""
    modes = map(_constant, [*node.args[1:], *(it.value for it in node.keywords)])
    return _name(node.func) in _READERS and not any(isinstance(it, str) and it[:1] in ("w", "a", "x") for it in modes)


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _constant(node: ast.AST) -> Any:
    return node.value if isinstance(node, ast.Constant) else None
