"""The agent's folders: each has a true map, and knows only the layers below it."""

import ast
import functools
import re

from harness import ROOT

AGENT = ROOT / "agent" / "plimsoll_agent"

LAYERS = ("run", "engines", "watch", "values", "ranks", "trials", "remedies.support", "remedies", "inputs", "survive", "survey", "calibrate", "")
"""From the lowest on; the last is what stands beside the folders and wires them together."""

BELOW_ALL = {"patch", "kinds", "settings", "source"}
"""They stand beside the folders, and know none of them."""

FILES = {".".join(it.relative_to(AGENT).with_suffix("").parts): it for it in AGENT.rglob("*.py")}
"""By module, without `plimsoll_agent.`."""


def imported(path):
    """What a file imports of the agent, wherever the import stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "plimsoll_agent":
            package = node.module.partition(".")[2]
            for alias in node.names:
                inside = (package + "." if package else "") + alias.name
                if inside in FILES:
                    yield inside
                elif package in FILES:
                    yield package
                elif (package + "." if package else "") + "__init__" in FILES:
                    yield (inside if inside + ".__init__" in FILES else package).removesuffix(".") + ".__init__"


def layer(module):
    return -1 if module in BELOW_ALL else LAYERS.index(module.rpartition(".")[0])


@functools.cache
def edges():
    return {it: set(imported(path)) - {"__init__", ".__init__"} for it, path in FILES.items()}


def test_nothing_knows_a_layer_above_its_own():
    upwards = {(a, b) for a, all in edges().items() for b in all if layer(b) > layer(a)}
    assert not upwards


def test_no_modules_import_each_other_in_a_circle():
    left = dict(edges())
    while True:
        leaves = [it for it, all in left.items() if not all & left.keys()]
        if not leaves:
            break
        for it in leaves:
            del left[it]
    assert not left


def test_each_folder_says_what_is_in_it():
    for package in (it for it in FILES if it.endswith("__init__")):
        prefix = package.removesuffix("__init__")
        inside = {it.removeprefix(prefix) for it in FILES if it.startswith(prefix) and it != package}
        inside = {it.removesuffix(".__init__") for it in inside if "." not in it.removesuffix(".__init__")}
        if prefix == "remedies.":
            continue  # Its map is the table, see test_ids.py.
        text = ast.get_docstring(ast.parse(FILES[package].read_text()), clean=False)
        named = set(re.findall(r"^    (\w+)  +\S", text, re.MULTILINE))
        assert named == inside, package
