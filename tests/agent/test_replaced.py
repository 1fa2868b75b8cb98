"""What the agent replaces in PyTorch and elsewhere, all of it, in each kind of run: `replaced.txt` has the list, and nothing else is replaced."""

import json
from pathlib import Path

import pytest

pytest.importorskip("triton")

LISTED = Path(__file__).with_name("replaced.txt")

SCRIPT = """
    import functools, json, sys, types
    import torch, torch.distributed, torch.utils.data, triton
    from plimsoll_agent import patch

    def functions(value):
        "What is behind a name in a module or a class."
        if isinstance(value, property):
            return [value.fget, value.fset]
        if isinstance(value, (staticmethod, classmethod, types.MethodType)):
            return [value.__func__]
        return [value.func] if type(value) is functools.partial else [value]

    def is_ours(value):
        return any("plimsoll_agent" in it.__code__.co_filename for it in functions(value) if isinstance(it, types.FunctionType))

    # Whoever stands in a module or a class of others and is ours, whatever put it there.
    found, modules = set(), [it for name, it in list(sys.modules.items()) if it and not name.startswith(("plimsoll_agent", "__main__", "sitecustomize"))]
    classes = [it for module in modules for it in list(vars(module).values()) if isinstance(it, type) and "plimsoll_agent" not in str(it.__module__)]
    for owner in [*modules, *classes]:
        found |= {(id(owner), name) for name, value in list(vars(owner).items()) if is_ours(value)}
    assert found <= {(id(it.owner), it.name) for it in patch.log()}, "something of ours is there that did not go through patch"
    assert len(found) > 10, "the look finds what is known to be replaced"
    print(json.dumps(sorted({f"{it.by}: {it}" for it in patch.log()})))
"""

RUNS = {
    "predict": {},
    "a search": {"PLIMSOLL_STOP": "validation", "PLIMSOLL_SITES": "1", "PLIMSOLL_METER": "1", "PLIMSOLL_UNHURRIED": "1"},
    "the largest inputs": {"PLIMSOLL_BATCH_LENGTH": "64", "PLIMSOLL_IMAGE_SIZE": "64x64"},
    "batches without padding": {"PLIMSOLL_BATCH_LENGTH": "text"},
    "the worst batches": {"PLIMSOLL_WORST_BATCHES": "1"},
    "half of each batch": {"PLIMSOLL_HALF": "samples"},
    "memory without an end": {"PLIMSOLL_LIMIT_RESERVED": "-1"},
    "a real run": {"PLIMSOLL_MODE": "run"},
    "a real run that survives": {"PLIMSOLL_MODE": "run", "PLIMSOLL_SURVIVE": "1"},
    "a real run in which some steps are seen": {"PLIMSOLL_MODE": "run", "PLIMSOLL_STACKS": "sampled"},
}


def listed(run):
    """What the file lists of this kind of run, and of what it is one of."""
    found, of = [], None
    for line in LISTED.read_text().splitlines():
        if not line.startswith("    "):
            of = line
        elif of in (run, *(("every run", "every run" if "real" in run else "on a phantom") if run in RUNS else ())):
            found.append(line.strip())
    return sorted(found)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("run", RUNS)
def test_nothing_is_replaced_that_is_not_listed(bare, run):
    ran = bare(SCRIPT, env=RUNS[run])
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == listed(run)


def test_a_replacement_looks_like_what_it_replaces_and_can_be_taken_back(bare):
    ran = bare(
        """
        import inspect
        from plimsoll_agent import patch

        class Base:
            def told(self, one, two=2):
                "Says it."
                return one + two

            @staticmethod
            def plain(one):
                return one

        class Own(Base):
            pass

        told = Base.told
        patch.replace(Own, "told", lambda real: lambda *args: -real(*args))
        assert (Own().told(1), Base().told(1)) == (-3, 3)
        assert Own.told.__doc__ == "Says it." and str(inspect.signature(Own.told)) == "(self, one, two=2)"
        assert [str(it) for it in patch.log()][-1] == "__main__.Own.told"
        assert patch.log()[-1].undo() and Own.told is told and "told" not in vars(Own)
        assert patch.log()[-1].redo() and Own().told(1) == -3

        patch.replace(Base, "plain", lambda real: lambda one: real(one) + 1)
        assert Base().plain(1) == 2, "static, as it was"
        Base.plain = staticmethod(lambda one: 0)
        assert not patch.log()[-1].undo() and Base.plain(1) == 0, "somebody else's stays"

        def once():
            return patch.replace(Base, "told", lambda real: lambda *args: 2 * real(*args), once=True)

        assert once() is not None and once() is None and Base().told(1) == 6
        """
    )
    assert ran.returncode == 0, ran.stderr


OF_PLANS = """
    import json, torch
    from plimsoll_agent import patch, remedies
    from plimsoll_agent.agent import current
    from plimsoll_agent.remedies.support.hooks import Hooks
    from plimsoll_agent.remedies.table import REMEDIES

    VALUES = {"number": 2, "numbers": [1], "text": "x"}
    found = []
    for id, kind in REMEDIES.items():
        if id == "optimizer-8bit":  # It needs a library that is not in every environment; it replaces what `adafactor` does.
            continue
        before = len(patch.log())
        given = {name: it.words[0] if it.kind == "word" else VALUES[it.kind] for name, it in kind.takes.items() if it.is_needed}
        hooks = Hooks(torch, current()._recording)
        remedies.apply(torch, json.dumps({"version": 1, "remedies": [dict(given, id=id)]}), hooks)
        hooks.install()
        replaced = patch.log()[before:]
        found += {f"{id}: {it.by}: {it}" for it in replaced}
        assert all(it.undo() for it in reversed(replaced)), "each can be taken back"
    print(json.dumps(sorted(found)))
"""


def test_what_each_remedy_replaces_is_listed(bare):
    ran = bare(OF_PLANS, env={"PLIMSOLL_MODE": "run"})
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == listed("a plan with each remedy in turn, before the program calls anything")
