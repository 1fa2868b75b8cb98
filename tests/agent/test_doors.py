"""The agent has one door to what it replaces in other modules, `patch`, and one to the environment, `settings`: nothing else goes past them."""

import ast

import pytest
from harness import ROOT

AGENT = ROOT / "agent"

SETS_ATTRIBUTES = {
    "plimsoll_agent/patch.py": "the door",
    "plimsoll_agent/inputs/samples.py": "in a child of its own, which ends there",
    "plimsoll_agent/ranks/imagined.py": "fills a class of its own",
    "plimsoll_agent/remedies/support/split.py": "settings of PyTorch's backends, which have values and no code",
    "plimsoll_agent/values/interpreted.py": "puts Triton's language back as it was before a kernel was interpreted",
    "plimsoll_agent/watch/trackers.py": "a mark on its own function",
    "plimsoll_agent/engines/asked.py": "values of an engine's arguments, which are no functions",
    "plimsoll_agent/engines/sglang.py": "values that an engine plans with, which are no functions",
}
"""The files with a `setattr` or a `delattr`, and what each is for."""

KNOWS_THE_ENVIRONMENT = {
    "plimsoll_agent/settings.py": "the door",
    "sitecustomize.py": "runs in every Python of a run, also where there is no torch: it imports nothing to find out",
    "plimsoll_agent/nursery.py": "gives each child the environment that it was ordered with",
    "plimsoll_agent/outside.py": "sets what others read: the switches of services that a phantom must not reach",
    "plimsoll_agent/ranks/imagined.py": "is a launcher: what it sets is what its ranks read",
    "plimsoll_agent/launcher.py": "becomes a rank, with the environment that the launcher made for it",
    "plimsoll_agent/remedies/support/spread.py": "takes a launcher's place: what it takes away the script does not see",
    "plimsoll_agent/calibrate/ranks.py": "a program of its own, which starts ranks",
}
"""The files that read or write it, and why not through `settings`."""


def files():
    for path in sorted(AGENT.rglob("*.py")):
        yield path.relative_to(AGENT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def functions_of(tree):
    """The names of functions that are defined anywhere in a file."""
    return {it.name for it in ast.walk(tree) if isinstance(it, ast.FunctionDef)}


def root_of(node):
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def is_code(node, own):
    """Whether this is a function, or what a decorator makes of one."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
        decorates = name in {"staticmethod", "classmethod", "property", "wraps", "guarded", "partial"}
        return decorates or isinstance(node.func, ast.Call) and is_code(node.func, own)
    return isinstance(node, ast.Lambda) or isinstance(node, ast.Name) and node.id in own


def replaced_by_hand(tree):
    """Assignments `owner.name = function`, but for those to `self`."""
    own = functions_of(tree)
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else []:
            for place in target.elts if isinstance(target, ast.Tuple) else [target]:
                if not isinstance(place, ast.Attribute):
                    continue
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                if root_of(place) != "self" and any(is_code(it, own) for it in values):
                    yield ast.unparse(node)


ON_OBJECTS = {
    "plimsoll_agent/run/after_import.py": ("spec.loader.exec_module", "the loader of one module, for one import"),
    "plimsoll_agent/run/uncaught.py": ("process.run", "a process that is about to run, once"),
    "plimsoll_agent/values/interpreted.py": ("tensor.__index__", "what Triton's interpreter fills for one launch, and is put back after it"),
    "plimsoll_agent/remedies/support/again.py": ("ctx.remedy, ctx.gradients_of, ctx.n", "what our own function of autograd keeps"),
}
"""Where a function is put on one object, which nobody else meets: the file, the place and why that is no replacement."""


def test_nothing_is_set_by_name_past_the_door():
    names = {"setattr", "delattr"}
    found = {path for path, tree in files() if any(isinstance(it, ast.Name) and it.id in names for it in ast.walk(tree))}
    assert found == SETS_ATTRIBUTES.keys()


def test_no_function_is_put_anywhere_past_the_door():
    found = {path: {it.partition(" = ")[0].strip("()") for it in replaced_by_hand(tree)} for path, tree in files()}
    assert {path: it for path, it in found.items() if it} == {path: {place} for path, (place, _) in ON_OBJECTS.items()}


@pytest.mark.parametrize(
    "code",
    [
        "def f(): pass\ntorch.load = f",
        "torch.cuda._is_in_bad_fork = lambda: False",
        "def f(): pass\nowner.name, owner.other = f, f",
        "def f(): pass\nkind.__new__ = staticmethod(f)",
        "def f(): pass\noptimizer.step = functools.wraps(step)(f)",
    ],
)
def test_what_is_put_by_hand_is_found(code):
    assert list(replaced_by_hand(ast.parse(code)))


def test_only_settings_read_the_environment():
    names = {"environ", "getenv", "putenv", "environb"}
    found = {
        path
        for path, tree in files()
        if any(isinstance(it, ast.Attribute) and it.attr in names and root_of(it) == "os" for it in ast.walk(tree))
        or any(isinstance(it, ast.ImportFrom) and it.module == "os" for it in ast.walk(tree))
    }
    assert found == KNOWS_THE_ENVIRONMENT.keys()


def calling_themselves(tree):
    """The functions within functions that do."""
    methods = {id(it) for owner in ast.walk(tree) if isinstance(owner, ast.ClassDef) for it in owner.body}
    within = {id(it): it for outer in ast.walk(tree) if isinstance(outer, ast.FunctionDef) for it in ast.walk(outer) if it is not outer}
    for it in within.values():
        if isinstance(it, ast.FunctionDef) and id(it) not in methods:
            names = [name for name in ast.walk(it) if isinstance(name, ast.Name) and name.id == it.name]
            means_another = any(isinstance(name.ctx, ast.Store) for name in names) or it.name in functions_of(ast.Module(it.body, []))
            if names and not means_another:
                yield it.name


def test_no_function_within_another_calls_itself():
    """It would refer to itself, and keep what it captured, such as tensors of the script, until Python's collector comes by."""
    assert not [(path, name) for path, tree in files() for name in calling_themselves(tree)]
    assert list(calling_themselves(ast.parse("def f():\n    def g(n):\n        return g(n - 1)"))) == ["g"]
