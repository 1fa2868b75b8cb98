"""Our failures never become the user's: each function of the agent is broken in turn, and the program trains all the same. They are broken in four parts."""

import pytest

BREAKS = """
    import inspect, sys, types
    import torch, torch.nn.functional as F
    from torch import nn

    EXEMPT, PART = {EXEMPT}, {PART}

    class Stumbles(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()
        @staticmethod
        def backward(ctx, gradient):
            raise KeyError("the script's own")

    def train():
        "What the script computes, with errors of its own that it catches."
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
        net.train(False), net.train()
        opt = torch.optim.SGD(net.parameters(), 0.1)
        caught = []
        def closure():
            opt.zero_grad()
            net.zero_grad()
            loss = F.mse_loss(net(torch.ones(4, 8)), torch.ones(4, 1))
            loss.backward()
            return loss
        def fails():
            raise KeyError("the script's own")
        for act in (closure, lambda: opt.step(closure), lambda: opt.step(fails), lambda: Stumbles.apply(net(torch.ones(4, 8))).sum().backward(),
                    lambda: net("no tensor"), lambda: torch.optim.SGD([]), lambda: opt.step(closure)):
            try:
                caught.append(float(act() or 0))
            except Exception as error:
                caught.append(repr(error))
        return caught, [it.tolist() for it in net.parameters()]

    def broken(*args, **kwargs):
        raise RuntimeError("broken on purpose")

    def functions():
        "Every function and method of the agent's modules that are there: its name, and what runs behind a guard."
        for name, module in sorted(sys.modules.items()):
            if name.startswith("plimsoll_agent.") and name.partition(".")[2] not in ("run.guard", "patch", "kinds", "settings"):
                for owner in [module, *(it for it in vars(module).values() if isinstance(it, type) and it.__module__ == name)]:
                    for attribute, value in list(vars(owner).items()):
                        value = inspect.unwrap(value) if callable(value) else value
                        if isinstance(value, types.FunctionType) and value.__module__ == name and not value.__code__.co_freevars:
                            yield "%s.%s" % (name.partition(".")[2], value.__qualname__), value

    expected, missed, tried = train(), [], 0
    for number, (name, function) in enumerate(functions()):
        if number % 4 != PART or name in EXEMPT or function.__name__ == "__init__":
            continue
        code, function.__code__ = function.__code__, broken.__code__
        try:
            came = train()
        except BaseException as error:
            came = repr(error)
        finally:
            function.__code__ = code
        tried += 1
        if came != expected:
            missed.append((name, str(came)[:200]))
    for it in missed:
        print(it)
    print(tried, "functions were broken")
    sys.exit(bool(missed))
"""

EXEMPT = {
    "agent.Agent._is_live": "an attribute is read",
    "run.uncaught._audited": "an audit hook: guards what it does by itself, in each event of Python",
    "run.modules.Modules._enter": "guards what it does by itself, in each call of a module",
    "run.modules.Modules._leave": "guards what it does by itself, in each call of a module",
    "remedies.support.hooks._starred": "how a remedy calls the model; a remedy may raise",
    "values.descent.stepped": "calls the step; what it does beside that is guarded",
}
"""What the wrappers call that is not behind a guard, and why."""

RUNS = {
    "predict": {},
    "a search": {"PLIMSOLL_SITES": "1", "PLIMSOLL_METER": "1"},
    "a real run in which some steps are seen": {"PLIMSOLL_MODE": "run", "PLIMSOLL_STACKS": "sampled"},
}


@pytest.mark.matrix(1)
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("run", RUNS)
def test_a_fault_of_ours_is_not_the_scripts(bare, run, part):
    ran = bare(BREAKS.replace("{EXEMPT}", repr(set(EXEMPT))).replace("{PART}", str(part)), stop="until-exit", env=RUNS[run], timeout=400)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert int(ran.stdout.split()[0]) > 100
