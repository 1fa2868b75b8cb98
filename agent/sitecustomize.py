"""Loads plimsoll's agent when a Python process starts.

`plimsoll predict` puts this folder first on PYTHONPATH, so Python's `site` imports this file at
start-up in every Python of the process tree. It arms the agent and then steps aside: the
`sitecustomize` of the user (or of the distribution) would have been imported instead, so this file
runs it. It knows nothing of torch; that is `plimsoll_agent`'s business.
"""


def _arm() -> None:
    import os

    if not os.environ.get("PLIMSOLL_SESSION"):
        return
    try:
        from plimsoll_agent import torch_import

        torch_import.watch()
        kept = os.environ.get("PLIMSOLL_BYTECODE")
        if kept:
            from plimsoll_agent import bytecode

            bytecode.watch(kept)
        if os.environ.get("PLIMSOLL_EDITS"):
            from plimsoll_agent.inputs import edits

            edits.write(os.environ["PLIMSOLL_EDITS"])
        if os.environ.get("PLIMSOLL_MODE") != "run":
            from plimsoll_agent import outside
            from plimsoll_agent.run import uncaught

            outside.watch()
            uncaught.watch_children()
            if os.environ.get("PLIMSOLL_FOLDS"):
                uncaught.fold_interrupts()
    except Exception as error:  # The user's program comes first: without us it still runs.
        import sys

        print("plimsoll: the agent could not start: %r" % (error,), file=sys.stderr)


def _run_the_next_one() -> None:
    import os
    import sys
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.realpath(os.path.dirname(os.path.abspath(__file__)))
    others = [entry for entry in sys.path if os.path.realpath(entry or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    # A later import of `sitecustomize` gets the user's, as if this one did not exist. What it
    # raises reaches `site`, which reports it the way it always does.
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_arm()
_run_the_next_one()
