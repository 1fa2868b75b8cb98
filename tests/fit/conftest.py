"""Runs a training program on the CPU, where numbers are real, with and without a plan.

The agent patches the torch of its process, so each run is a process of its own: a fork of one that has torch.
"""

import json
import os
import socket
import subprocess
import tempfile

import pytest
from harness import COLD, binary, clean_environment

FORKS = """
import ast, gc, json, os, sys, traceback, types
import torch, torch._dynamo  # Which the first optimizer would import, in each child.
torch.set_num_threads(1)
known = set()

def import_what_it_imports(text):
    for node in ast.walk(ast.parse(text)):
        statement = ast.unparse(node) if isinstance(node, (ast.Import, ast.ImportFrom)) else ""
        if statement and "plimsoll" not in statement and statement not in known:
            known.add(statement)
            try:
                exec(statement, {})
            except ImportError:
                pass  # The program will meet it.

for line in sys.stdin:
    order = json.loads(line)
    for text in (order["program"], order["arguments"].get("script", "")):
        import_what_it_imports(text)
    gc.freeze()  # Or each child's collector would write into, and so copy, all that is here.
    children = []
    for rank, result in enumerate(order["results"]):
        children.append(os.fork())
        if children[-1]:
            continue
        os.dup2(2, 1)  # Gloo of torch 2.8 says there that it is connected.
        os.environ.update(order["environment"])
        if len(order["results"]) > 1:
            world = str(len(order["results"]))
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=world, LOCAL_WORLD_SIZE=world)
        try:
            from plimsoll_agent import agent
            save = torch.save
            agent.install(torch)
            main = sys.modules["__main__"] = types.ModuleType("__main__")  # Where torch.compile looks its names up.
            main.arguments = order["arguments"]
            exec(compile(order["program"], "train.py", "exec"), main.__dict__)
            save(main.result, result)
        except BaseException as error:
            with open(result + ".error", "w") as file:
                file.write("%s: %s" % (type(error).__name__, error))
            traceback.print_exc()
        os._exit(0)
    for child in children:
        os.waitpid(child, 0)
    print("done", flush=True)
"""


class Trainer:
    """Runs programs; each leaves what it wants compared in `result`, a list of numbers and tensors."""

    def __init__(self, folder):
        self.folder = folder
        # The agent of the binary: building it makes the table of remedies.
        unpacking = clean_environment() | {"PLIMSOLL_CACHE": str(folder / "cache")}
        agent = subprocess.run([binary(), "agent"], env=unpacking, check=True, capture_output=True, text=True).stdout.strip()
        environment = clean_environment() | {
            "PYTHONPATH": agent,
            "PLIMSOLL_SESSION": str(folder),
            "PLIMSOLL_MODE": "nursery",
            "PLIMSOLL_STOP": "until-exit",
            "CUDA_VISIBLE_DEVICES": "",
        }
        self.process = subprocess.Popen(
            [COLD, "-c", FORKS], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, program, *remedies, arguments=None, survive=False, half=""):
        """What the program computes with the remedies; the error's text if it raised. `half`: what of its batches is made half."""
        return self.ranks(program, *remedies, arguments=arguments, survive=survive, half=half)[0]

    def ranks(self, program, *remedies, arguments=None, world=1, survive=False, half=""):
        """The same for each of `world` processes."""
        import torch

        results = [tempfile.mktemp(dir=self.folder) for _ in range(world)]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        plan = json.dumps({"version": 1, "remedies": [{"id": it} if isinstance(it, str) else it for it in remedies]})
        order = {
            "program": program,
            "arguments": arguments or {},
            "environment": {
                "PLIMSOLL_PLAN": plan if remedies else "",
                "PLIMSOLL_SURVIVE": "1" if survive else "",
                "PLIMSOLL_HALF": half,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
            "results": results,
        }
        print(json.dumps(order), file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n"
        return [_read(torch, it) for it in results]


def _read(torch, result):
    if os.path.exists(result + ".error"):
        with open(result + ".error") as file:
            return file.read()
    return torch.load(result, weights_only=True)


@pytest.fixture(scope="session")
def trainer(tmp_path_factory):
    trainer = Trainer(tmp_path_factory.mktemp("fit"))
    yield trainer
    trainer.process.stdin.close()
    trainer.process.wait(30)
