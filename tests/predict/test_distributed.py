"""Jobs of several ranks: one of them imagined among the others, or all of them as processes."""

import base64
import json
import shutil
from pathlib import Path

import pytest
from harness import COLD, PYTHON, ROOT, assert_consistent

SCRIPTS = Path(__file__).parent / "scripts"
TORCHRUN = (PYTHON, "-m", "torch.distributed.run")


def predict(plimsoll, *words, options=(), launcher=(PYTHON,)):
    shutil.copytree(SCRIPTS, plimsoll.folder, dirs_exist_ok=True)
    options = ("--gpu", "h100-80g", *options)
    return plimsoll.predict(*launcher, "distributed.py", *words, options=options)


def notes(ran):
    return {it["code"] for it in ran.report["notes"]}


@pytest.mark.matrix(2)
@pytest.mark.parametrize(
    "kind",
    ["ddp", "ddp-gradient-view", "ddp-static", "ddp-unused", "zero1", "fsdp1", "fsdp1-original", "fsdp2", "fsdp2-mixed", "fsdp2-keep", "fsdp2-offload", "hsdp", "tensor", "tensor-fsdp2"],
)
def test_every_way_to_spread_a_model_runs_as_one_rank(plimsoll, kind):
    ran = predict(plimsoll, kind, options=("--world-size", "8", "--rank", "3"))
    assert ran.code == 0, ran
    assert 3 <= ran.report["steps_seen"] <= 6 and ran.report["steady"], ran.report
    assert_consistent(ran.report)
    assert "imagined-ranks" in notes(ran) and not notes(ran) & {"not-imitated", "agent-failed"}, ran.report["notes"]


def test_a_launcher_starts_one_rank_that_needs_what_each_of_them_needs(plimsoll):
    """The same to the byte as with every rank a process, and as from the environment alone."""
    sizes = {}
    for name, options, launcher in (
        ("one", (), (*TORCHRUN, "--nproc-per-node", "4")),
        ("all", ("--all-ranks",), (*TORCHRUN, "--nproc-per-node", "4")),
        ("environment", ("--world-size", "4"), (PYTHON,)),
    ):
        ran = predict(plimsoll, "fsdp2", options=options, launcher=launcher)
        assert ran.code == 0, ran
        assert ("several-processes" in notes(ran)) == (name == "all"), ran.report["notes"]
        sizes[name] = (ran.report["peak_allocated_bytes"], ran.report["peak_reserved_bytes"])
    assert sizes["one"] == sizes["all"] == sizes["environment"]


@pytest.mark.soak
def test_deepspeeds_launcher_starts_one_rank(plimsoll):
    """`deepspeed train.py` starts this module, which takes the ranks of each machine in base64."""
    folder = plimsoll.folder / "deepspeed" / "launcher"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("import torch")
    (folder / "__init__.py").write_text("")
    (folder / "launch.py").write_text(
        """
import argparse, os, subprocess, sys
def parse_args():
    it = argparse.ArgumentParser()
    it.add_argument("--world_info")
    it.add_argument("--node_rank", type=int, default=0)
    for name in ("no_python", "module", "no_local_rank"):
        it.add_argument("--" + name, action="store_true")
    it.add_argument("training_script")
    it.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return it.parse_args()
if __name__ == "__main__":
    sys.exit("the launcher itself ran")
"""
    )
    plimsoll.script("import os, sys, torch\nx = torch.zeros(1 << 20, device='cuda')\nprint(sys.argv[1:], os.environ['RANK'], os.environ['WORLD_SIZE'], torch.cuda.device_count())\n")
    world = base64.urlsafe_b64encode(json.dumps({"one": [0, 1, 2, 3], "two": [0, 1, 2, 3]}).encode()).decode()
    command = ("-m", "deepspeed.launcher.launch", "--world_info=" + world, "--node_rank=0", "train.py", "--stage", "3")
    ran = plimsoll.predict(PYTHON, *command, options=("--gpu", "h100-80g", "--until-exit", "--rank", "6"))
    assert ran.code == 0 and "['--local_rank=2', '--stage', '3'] 6 8 4" in ran.stdout, ran


def test_more_ranks_leave_less_to_each(plimsoll):
    sizes = []
    for world in ("2", "64"):
        ran = predict(plimsoll, "fsdp2", options=("--world-size", world))
        assert ran.code == 0, ran
        sizes.append(ran.report["peak_allocated_bytes"])
    assert sizes[1] < sizes[0]


def test_stages_of_a_pipeline_send_each_other_their_shapes(plimsoll):
    launcher = (*TORCHRUN, "--nproc-per-node", "2")
    ran = predict(plimsoll, "pipeline", options=("--all-ranks",), launcher=launcher)
    assert ran.code == 0, ran
    assert ran.report["steps_seen"] >= 3 and "not-imitated" not in notes(ran), ran.report


STAGES = """
import os, sys, torch, torch.distributed as dist, torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
mesh = init_device_mesh("cuda", (3, dist.get_world_size() // 3), mesh_dim_names=("pp", "dp"))
number = mesh["pp"].get_local_rank()
parts = [[nn.Embedding(100, 256)], [nn.Linear(256, 8192), nn.Linear(8192, 256)], [nn.Linear(256, 100)]]
stage = PipelineStage(nn.Sequential(*parts[number]).to(device), number, 3, device, group=mesh["pp"].get_group())
schedule = Schedule1F1B(stage, 4, loss_fn=lambda output, target: nn.functional.cross_entropy(output.flatten(0, 1), target.flatten()))
optimizer = torch.optim.AdamW(stage.submod.parameters())
for _ in range(4):
    words = torch.randint(100, (8, 32), device=device)
    schedule.step(*[words] * (number == 0), **{"target": words} if number == 2 else {})
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


@pytest.mark.matrix(1)
@pytest.mark.parametrize("launcher", [(), (*TORCHRUN, "--nnodes", "3", "--nproc-per-node", "8")], ids=["environment", "launcher"])
def test_one_rank_of_each_stage_runs_where_the_stages_are_on_several_machines(plimsoll, launcher):
    """Nobody asked for them. The middle one needs most, gets the shapes that the first one sends, and has the GPU of its machine for itself."""
    plimsoll.script(STAGES)
    options = ("--gpu", "h100-80g") + (() if launcher else ("--world-size", "24"))
    ran = plimsoll.predict(*(launcher or (PYTHON,)), "train.py", options=options)
    assert ran.code == 0, ran
    assert_consistent(ran.report)
    ranks = [(it["rank"], it["device"]) for it in ran.report["ranks"]]
    assert ranks[0] == (8, 0) and sorted(ranks) == [(0, 0), (8, 0), (16, 0)], ran.report["ranks"]
    differ = next(it["text"] for it in ran.report["notes"] if it["code"] == "ranks-differ")
    assert "the largest is rank 8" in differ and "ranks 0, 8, 16 ran, one of each stage" in differ, differ
    assert not notes(ran) & {"together", "ranks-unseen", "imagined-ranks", "unknown-objects"}, ran.report["notes"]


@pytest.mark.parametrize("batch", ["16 * (1 + (rank == 1))", "{2: 32}.get(rank, 16)", "json.load(open('sizes.json'))[rank]", "[16, 16][rank % 2]"], ids=["compared", "looked-up", "read", "alike"])
@pytest.mark.soak
def test_a_rank_between_the_first_and_the_last_that_differs_is_run(plimsoll, batch):
    """The script's text names it. Nobody asked for it."""
    (plimsoll.folder / "sizes.json").write_text("[16, 16, 32, 16]")
    plimsoll.script(
        f"""
import json, os, torch, torch.distributed as dist
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4096, 4096).cuda(), device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4):
    model(torch.randn(64 * ({batch}), 4096, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
    )
    ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "rtx4090", "--world-size", "4"))
    assert ran.code == 0, ran
    assert_consistent(ran.report)
    if "%" in batch:
        # `rank % 2` is in no condition, so it tells no kinds apart; the two that ran are alike.
        assert "ranks-alike" in notes(ran) and "ranks-differ" not in notes(ran), ran.report["notes"]
        return
    odd = 1 if "==" in batch else 2
    differ = next(it["text"] for it in ran.report["notes"] if it["code"] == "ranks-differ")
    assert f"the largest is rank {odd}, as shown here; all of them ran" in differ, differ
    assert ran.report["ranks"][0]["rank"] == odd and len(ran.report["ranks"]) == 4, ran.report["ranks"]


@pytest.mark.soak
def test_the_first_rank_of_each_stage_stands_for_the_others_on_one_machine(plimsoll):
    """The last of each stage ran beside it, and needs the same."""
    plimsoll.script(STAGES)
    ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "h100-80g", "--world-size", "6"))
    assert ran.code == 0, ran
    assert_consistent(ran.report)
    assert sorted(it["rank"] for it in ran.report["ranks"]) == [0, 2, 4], ran.report["ranks"]
    differ = next(it["text"] for it in ran.report["notes"] if it["code"] == "ranks-differ")
    assert "the largest is rank 2" in differ and "ranks 0, 2, 4 ran, the first of each stage, and ranks 1, 3, 5, the last" in differ, differ
    assert "ranks-unseen" not in notes(ran), ran.report["notes"]


def test_a_thread_that_waits_for_gpu_0_has_a_context_there(plimsoll):
    """As the one of PyTorch that saves a checkpoint in the background: a new thread is on GPU 0, whatever the rank."""
    plimsoll.script(
        """
import os, threading, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters())
for step in range(4):
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
if WAITS:
    thread = threading.Thread(target=lambda: torch.cuda.default_stream(0).synchronize())
    thread.start()
    thread.join()
everybody = [None] * 2
dist.all_gather_object(everybody, "waited")
free, total = torch.cuda.mem_get_info()
# In one write: torchrun runs Python with -u, which writes each part of a line by itself.
print(f"HELD {os.environ['RANK']} {total - free}\\n", end="", flush=True)
dist.all_gather_object(everybody, "asked")
dist.destroy_process_group()
"""
    )
    held = {}
    text = (plimsoll.folder / "train.py").read_text()
    for waits in ("False", "True"):
        plimsoll.script(text.replace("WAITS", waits))
        command = (*TORCHRUN, "--nproc-per-node", "2", "train.py")
        ran = plimsoll.predict(*command, options=("--gpu", "h100-80g", "--all-ranks", "--until-exit"))
        assert ran.code == 0, ran
        said = (line.split() for line in ran.stdout.splitlines() if line.startswith("HELD"))
        held[waits] = {rank: int(size) for _, rank, size in said}
    assert held["True"]["1"] == held["False"]["1"]
    more = held["True"]["0"] - held["False"]["0"]
    assert 400 << 20 < more < 800 << 20, held


def test_what_fits_in_the_first_stage_only_is_no_answer(plimsoll):
    """One stage raises: the others are not known, and nothing is called safe."""
    plimsoll.script(STAGES.replace("stage = Pipeline", "if number == 1: raise ValueError('no such stage')\nstage = Pipeline"))
    ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "h100-80g", "--world-size", "24"))
    assert (ran.code, ran.report["verdict"], ran.report["safe_bytes"]) == (2, "fits_so_far", None), ran
    first = ran.stdout[: ran.stdout.index("At the peak")]
    assert "FITS SO FAR" in first and "several of them together did not run to an answer" in " ".join(first.split()), ran.stdout


COMPARES = """
import os, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
net = torch.nn.Linear(2048, 2048).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
order = [1, 2, 3]
for step in range(6):
    of_the_first = torch.tensor(order if rank == 0 else [-1] * 3, device="cuda")
    dist.broadcast(of_the_first, src=0)
    if of_the_first.tolist() != order:
        raise RuntimeError(f"rank {rank} disagrees with the first one")
    net(torch.zeros(8, 2048, device="cuda")).sum().backward()
    for it in net.parameters():
        dist.all_reduce(it.grad)
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("options", [("--world-size", "16"), ("--world-size", "2"), ("--all-ranks",)], ids=" ".join)
def test_numbers_that_the_first_rank_sends_arrive(plimsoll, options):
    """Frameworks compare them with their own (DeepSpeed the order of modules): a rank alone has none, so it runs beside the first."""
    plimsoll.script(COMPARES)
    launcher = (*TORCHRUN, "--nproc-per-node", "2") if options == ("--all-ranks",) else (PYTHON,)
    ran = plimsoll.predict(*launcher, "train.py", options=("--gpu", "h100-80g", *options))
    assert (ran.code, ran.report["verdict"]) == (0, "fits"), ran
    assert not notes(ran) & {"agent-failed", "ranks-unseen"} and ("ranks-alike" in notes(ran)) == ("--world-size" in options), ran.report["notes"]


EXPERTS = """
import os, torch, torch.distributed as dist, torch.nn as nn
dist.init_process_group("nccl")
world, width, capacity = dist.get_world_size(), 1024, CAPACITY
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))

class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, received, sent):
        ctx.sizes = received, sent
        y = x.new_empty(sum(received), x.shape[1])
        dist.all_to_all_single(y, x.contiguous(), received, sent)
        return y
    @staticmethod
    def backward(ctx, grad):
        received, sent = ctx.sizes
        return Exchange.apply(grad, sent, received), None, None

class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.own = nn.Linear(width, world), nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    def forward(self, x):
        share, chosen = self.router(x).softmax(-1).topk(1, -1)
        chosen = chosen.flatten()
        order = chosen.argsort(stable=True)
        if capacity:
            sent = received = [capacity] * world
            tokens = x.new_zeros(capacity * world, width)
            tokens[: len(x)] = x[order][: len(tokens)]
        else:
            counts = torch.bincount(chosen, minlength=world)
            theirs = torch.empty_like(counts)
            dist.all_to_all_single(theirs, counts)
            sent, received, tokens = counts.tolist(), theirs.tolist(), x[order]
        back = Exchange.apply(self.own(Exchange.apply(tokens, received, sent)), sent, received)
        return back[: len(x)] * share

model = nn.Sequential(Experts(), Experts()).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.randn(4096, width, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


def test_what_a_router_chooses_decides(plimsoll):
    """A card that is enough if tokens are spread evenly, and is not if all go to one expert."""
    plimsoll.script(EXPERTS.replace("CAPACITY", "0"))

    def size(*options):
        return plimsoll.predict(PYTHON, "train.py", options=("--world-size", "8", "--rank", "0", *options))

    ran = size("--gpu", "h100-80g")
    report = ran.report
    assert (ran.code, report["verdict"]) == (0, "fits"), ran
    [said] = [it["text"] for it in report["notes"] if it["code"] == "one-expert"]
    assert "if it spreads the tokens evenly" in said
    assert report["peak_device_bytes"] + (1 << 30) < report["safe_bytes"], report
    enough = "%dMiB" % ((report["peak_device_bytes"] >> 20) + 300)
    ran = size("--gpu", "h100-80g", "--memory", enough)
    assert (ran.code, ran.report["verdict"], ran.report["safe_bytes"]) == (2, "depends", None), ran
    assert "IT DEPENDS" in ran.stdout and "--assume experts=0.1" in ran.stdout, ran.stdout
    ran = size("--gpu", "h100-80g", "--memory", enough, "--assume", "experts=even")
    assert (ran.code, ran.report["verdict"]) == (0, "fits") and "one-expert" not in notes(ran), ran


def test_a_router_whose_experts_take_so_many_tokens_each_decides_nothing(plimsoll):
    plimsoll.script(EXPERTS.replace("CAPACITY", "640"))
    ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "h100-80g", "--world-size", "8", "--rank", "0"))
    assert (ran.code, ran.report["verdict"]) == (0, "fits") and "one-expert" not in notes(ran), ran


def test_what_ranks_tell_each_other(plimsoll):
    """Sums, objects and host groups: as if every rank said what this one says."""
    plimsoll.script(
        """
import datetime, os, torch, torch.distributed as dist
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
tokens = torch.tensor([100], device=device)
dist.all_reduce(tokens)
worst = torch.tensor([2.5], device=device)
dist.all_reduce(worst, op=dist.ReduceOp.MAX)
shards = [torch.zeros(2, dtype=torch.long, device=device) for _ in range(world)]
dist.all_gather(shards, torch.tensor([7, rank], device=device))
objects = [None] * world
dist.all_gather_object(objects, {"rank": rank})
host = dist.new_group(backend="gloo")
counts = torch.tensor([3])
dist.all_reduce(counts, group=host)
dist.monitored_barrier(host)
for group in (host, None):
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(minutes=1), group)  # As torchtitan does.
half = dist.new_group([0, 1, 2, 3, 12, 13])
few = torch.tensor([1], device=device)
dist.all_reduce(few, group=half)
dist.barrier()
print("SAYS", tokens.item(), worst.item(), shards[5].tolist(), objects[9], few.item(), device.index, rank, world)
dist.destroy_process_group()
"""
    )
    ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "h100-80g", "--world-size", "16", "--rank", "12"))
    assert ran.code == 0, ran
    assert "SAYS 1600 2.5 [7, 12] {'rank': 12} 6 4 12 16" in ran.stdout, ran


@pytest.mark.soak
def test_processes_that_a_script_starts_for_its_devices(plimsoll):
    """`mp.spawn` of one process a device: one of them runs, with the number that it would have."""
    plimsoll.script(
        """
import os, torch, torch.distributed as dist, torch.multiprocessing as mp
def main(rank, world):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="12355")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(500, 500).to(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(20, 500, device=rank)).sum().backward()
        optimizer.step()
    print("RANK", rank, "OF", dist.get_world_size())
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(main, args=(torch.cuda.device_count(),), nprocs=torch.cuda.device_count())
"""
    )
    options = ("--gpu", "h100-80g", "--gpus", "4", "--rank", "2", "--until-exit")
    ran = plimsoll.predict(COLD, "train.py", options=options)
    assert ran.code == 0, ran
    assert ran.stdout.count("RANK") == 1 and "RANK 2 OF 4" in ran.stdout, ran


def test_a_rank_that_does_not_exist_is_refused_before_anything_runs(plimsoll):
    ran = plimsoll.run("predict", "--world-size", "8", "--rank", "8", "--", PYTHON, "-c", "print('ran')")
    assert ran.code == 2 and "there is no --rank 8 among 8 ranks" in ran.stderr and "ran" not in ran.stdout, ran


@pytest.mark.soak
@pytest.mark.parametrize("name", ["ddp-gpt2", "fsdp2-llama-1b"])
def test_two_ranks_of_two_h200s_are_met(plimsoll, name):
    """What PyTorch reserved and allocated on a rank of two real cards, step by step, to the byte."""
    truth = json.loads((ROOT / "fixtures" / "distributed" / "h200-two-ranks.json").read_text())[name]
    shutil.copy(ROOT / "fixtures" / "distributed" / "train.py", plimsoll.folder)
    options = ("--gpu", "h200", "--world-size", "2", "--rank", str(truth["rank"]), "--until-exit")
    ran = plimsoll.predict(PYTHON, "train.py", name, options=options)
    assert ran.code == 0, ran
    said = [json.loads(line[5:]) for line in ran.stdout.splitlines() if line.startswith("STEP ")]
    assert said == [[it["max_allocated"], it["max_reserved"]] for it in truth["steps"]]
    # The whole device, NCCL and context included.
    early = ran.report.get("early", {"device_bytes": ran.report["peak_device_bytes"]})
    assert abs(early["device_bytes"] / truth["device_used"] - 1) < 0.005
    late = ran.report.get("late")
    if "late" not in truth:
        assert late is None and "order" not in notes(ran), ran.report["notes"]
        return
    # The other rank had DDP's first buckets for longer: a race, of which this is the other end.
    expected = [truth["late"]["max_allocated"], truth["late"]["max_reserved"]]
    assert [late["allocated_bytes"], late["reserved_bytes"]] == expected
    assert truth["late"]["device_used"] <= ran.report["safe_bytes"] and "order" in notes(ran), ran.report


def test_a_launcher_without_the_rank_that_was_asked_for_says_so(plimsoll):
    options, launcher = ("--rank", "9"), (*TORCHRUN, "--nnodes", "2", "--nproc-per-node", "4")
    ran = predict(plimsoll, "ddp", options=options, launcher=launcher)
    assert ran.code == 2 and "there is no --rank 9 among the 8 ranks of this launch" in ran.stderr, ran


AS_A_RANK = """
import os, sys, torch, torch.distributed as dist
here = os.path.dirname(os.path.abspath(__file__))
assert __name__ == "__main__" and sys.modules["__main__"].__dict__ is globals()
assert sys.argv == ["train.py", "--name", "x y"] and os.path.realpath(sys.path[0]) == os.path.realpath(here), (sys.argv, sys.path)
assert not hasattr(sys, "last_value") and sys._getframe().f_code.co_name == "<module>"
assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"]) == 1
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(4):
    net(torch.zeros(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
if os.environ["RANK"] == "5":
    raise ValueError("rank 5 is ill")
"""


@pytest.mark.parametrize("launcher", [TORCHRUN, (str(Path(COLD).parent / "torchrun"),)])
def test_torchrun_becomes_the_rank(plimsoll, launcher):
    """In its own process, which the script does not see; each rank has its own device, also the last one of another machine."""
    plimsoll.script(AS_A_RANK)
    command = (*launcher, "--nnodes", "2", "--nproc-per-node", "4", "train.py", "--name", "x y")
    ran = plimsoll.predict(*command, options=("--gpu", "h100-80g"))
    assert ran.code == 0 and "ranks-alike" in notes(ran), ran
    ill = plimsoll.predict(*command, options=("--gpu", "h100-80g", "--rank", "5"))
    assert ill.code == 2 and "the script raised ValueError: rank 5 is ill" in ill.stderr, ill
    frames = [line for line in ill.stderr.splitlines() if line.strip().startswith(("File", "[rank5]:   File"))]
    assert len(frames) == 1 and "train.py" in frames[0], ill.stderr


def test_a_function_that_is_launched_from_a_notebook(plimsoll):
    """The process that launches goes on as the rank."""
    plimsoll.script(
        """
import os, torch, torch.distributed as dist
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
def train():
    dist.init_process_group("nccl")
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, dist.get_rank())
    torch.ones(1000, device="cuda")
    print("SAYS", everyone)
elastic_launch(LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=4, run_id="notebook"), train)()
"""
    )
    ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "h100-80g"))
    assert ran.code == 0 and "SAYS [0, 0, 0, 0]" in ran.stdout, ran


@pytest.mark.matrix(1)
@pytest.mark.parametrize("rank, backend", [("0", "nccl"), ("3", "nccl"), ("3", "cpu:gloo,cuda:nccl")])
def test_a_rank_among_imagined_ones_saves_its_shards(plimsoll, rank, backend):
    """One rank plans what every one saves: the one that runs, whichever it is, over whichever group."""
    plimsoll.script(
        f"""
BACKEND = "{backend}"
"""
        """
import os, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict
from torch.distributed.fsdp import fully_shard
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group(BACKEND)
model = fully_shard(torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, 512)).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.randn(8, 512, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
weights, states = get_state_dict(model, optimizer)
dcp.save({"model": weights, "optimizer": states}, checkpoint_id="saved")
if "gloo" in BACKEND:
    dcp.async_save({"model": weights}, checkpoint_id="saved-meanwhile").result()
whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
print("SAVED", len(os.listdir("saved")) > 0, len(whole))
dist.destroy_process_group()
"""
    )
    options = ("--gpu", "h100-80g", "--world-size", "4", "--rank", rank, "--until-exit")
    ran = plimsoll.predict(PYTHON, "train.py", options=options)
    assert ran.code == 0 and "SAVED True" in ran.stdout, ran


@pytest.mark.parametrize("rank", ["0", "1"])
def test_the_state_of_a_sharded_optimizer_is_brought_together(plimsoll, rank):
    """What each rank tells is as large as what its own part of the optimizer holds; only rank 0 gets the whole."""
    plimsoll.script(
        """
import torch, torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
model = torch.nn.Sequential(*[torch.nn.Linear(64 * (1 + i), 64 * (2 + i)) for i in range(4)]).cuda()
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
for _ in range(2):
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
optimizer.consolidate_state_dict(to=0)
if dist.get_rank() == 0:
    states, params = optimizer.state_dict()["state"], list(model.parameters())
    print("WHOLE", len(states), all(states[i]["exp_avg"].shape == it.shape for i, it in enumerate(params)))
print("STEPPED ON")
dist.destroy_process_group()
"""
    )
    options = ("--gpu", "h100-80g", "--world-size", "3", "--rank", rank, "--until-exit")
    ran = plimsoll.predict(PYTHON, "train.py", options=options)
    assert ran.code == 0 and "STEPPED ON" in ran.stdout, ran
    assert rank != "0" or "WHOLE 8 True" in ran.stdout, ran


@pytest.mark.soak
def test_tensors_on_the_device_are_shared_among_processes(plimsoll):
    """An actor reads what the learner made: it has an address there, and is counted where it was made."""
    plimsoll.script(
        """
import torch, torch.multiprocessing as mp
def act(model, tensors, done):
    x = tensors.get()
    print("ACTED", tuple(model(x).shape), x.is_cuda, torch.cuda.memory_allocated() < x.nbytes, flush=True)
    del x
    done.set()
if __name__ == "__main__":
    mp.set_start_method("spawn")
    model = torch.nn.Linear(1024, 16).cuda()
    tensors, done = mp.Queue(), mp.Event()
    actor = mp.Process(target=act, args=(model, tensors, done))
    actor.start()
    for _ in range(2):
        x = torch.randn(1 << 14, 1024, device="cuda")
        model(x).sum().backward()
    tensors.put(x)
    done.wait()
    actor.join()
    print("LEARNT", actor.exitcode)
"""
    )
    ran = plimsoll.predict(COLD, "train.py", options=("--gpu", "h100-80g", "--until-exit"))
    assert ran.code == 0 and "LEARNT 0" in ran.stdout, ran
    assert "ACTED (16384, 16) True True" in ran.stdout and "not-imitated" not in notes(ran), ran


def test_calls_of_functions_in_imagined_ranks_are_named(plimsoll):
    plimsoll.script("import torch.distributed.rpc as rpc\nrpc.init_rpc('worker0', rank=0, world_size=2)\n")
    ran = plimsoll.run("predict", "--gpu", "h100-80g", "--world-size", "2", "--", PYTHON, "train.py")
    assert ran.code == 2 and "--all-ranks" in ran.stderr, ran


def test_synchronised_batch_norm_has_the_statistics_of_every_rank(plimsoll):
    """It drops ranks without an input by a mask, whose values a phantom does not have."""
    plimsoll.script(
        """
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(0)
norm = torch.nn.SyncBatchNorm(16).cuda()
seen = []
gather = torch.batch_norm_gather_stats_with_counts
torch.batch_norm_gather_stats_with_counts = lambda x, mean, *rest: (seen.append(len(mean)), gather(x, mean, *rest))[1]
for _ in range(2):
    norm(torch.randn(4, 16, 8, 8, device="cuda")).sum().backward()
mask = torch.empty(100, device="cuda").log_normal_() > 0
print("SAYS", seen, len(mask.nonzero()))
dist.destroy_process_group()
"""
    )
    ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "h100-80g", "--world-size", "4", "--until-exit"))
    assert ran.code == 0 and "SAYS [4, 4] 0" in ran.stdout, ran


def test_who_sends_to_every_other_rank_takes_more_than_they_do(plimsoll):
    """Message by message: after the first one it is not said that all others send to one."""
    plimsoll.script(
        """
import os, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
x = torch.zeros(1 << 20, device="cuda")
dist.scatter(x, [x.clone() for _ in range(8)] if dist.get_rank() == 0 else None, src=0)
"""
    )
    ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "h100-80g", "--world-size", "8", "--until-exit"))
    assert ran.code == 0 and ran.report["safe_bytes"] - ran.report["peak_device_bytes"] < 200 << 20, ran


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    "rank, use, mib",
    [
        ("0", "pass", 0),
        ("0", "dist.all_to_all_single(torch.empty_like(x), x)", 58 + 64 + 320),
        ("0", "dist.send(x, 1)", 58 + 64),
        ("1", "dist.recv(x, 0)", 58 + 320),
        ("0", "dist.new_group()", 198),
        ("0", "dist.all_reduce(x, group=dist.new_group())", 198 + 288),
        ("0", "dist.new_group([0])", 388),
    ],
)
def test_nccl_takes_memory_when_it_is_used(plimsoll, rank, use, mib):
    """Each way as it was measured on two H200s, where the first all-reduce had left 835 MiB (an odd one is rounded up)."""
    plimsoll.script(
        f"""
import os, torch, torch.distributed as dist
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
x = torch.zeros(1 << 20, device=device)
dist.all_reduce(x)
{use}
torch.cuda.synchronize()
"""
    )
    options = ("--gpu", "h200", "--world-size", "2", "--rank", rank, "--until-exit")
    ran = plimsoll.predict(PYTHON, "train.py", options=options)
    assert ran.code == 0, ran
    assert ran.report["other_bytes"] == (836 + mib) << 20, ran.report["other_bytes"] / 2**20


@pytest.mark.matrix(2)
@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize(
    "ranks, rank, use, mib",
    [
        ("range(0, 64, 8)", "8", "exchange", 58),
        ("range(64)", "62", "exchange", 58 + 7 * (64 + 320)),
        ("[0, 1, 8, 9, 62, 63]", "8", "exchange", 58 + 64 + 320),
        ("[0, 1, 8, 9, 62, 63]", "0", "send to 9", 58),
        ("[0, 1, 8, 9, 62, 63]", "8", "send to 9", 58 + 64),
    ],
)
def test_only_messages_within_a_machine_take_memory_for_each_rank(plimsoll, eager, ranks, rank, use, mib):
    """Of eight machines with eight ranks each; a group may have one rank of each, or all of one and some of another."""
    plimsoll.script(
        f"""
import os, torch, torch.distributed as dist
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", **({{"device_id": device}} if {eager} else {{}}))
x = torch.zeros(len({ranks}) << 10, device=device)
dist.all_reduce(x)
group = dist.new_group(list({ranks}))
if "{use}" == "exchange":
    dist.all_to_all_single(torch.empty_like(x), x, group=group)
else:
    dist.send(x, 9, group=group)
torch.cuda.synchronize()
"""
    )
    ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "h200", "--world-size", "64", "--rank", rank, "--until-exit"))
    assert ran.code == 0, ran
    # A pair has a communicator of its own where the group has none yet.
    assert ran.report["other_bytes"] == (836 + 198 + mib) << 20, ran.report["other_bytes"] / 2**20 - 836 - 198


def test_what_others_send_in_an_exchange_is_what_this_rank_sends_to_itself(plimsoll):
    """However it is asked for: NCCL gets one exchange, or a message to each rank and one from each."""
    plimsoll.script(
        """
import os, torch, torch.distributed as dist
import torch.distributed._functional_collectives as functional
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
mine = torch.arange(8, device="cuda") + 10
ways = [torch.empty_like(mine) for _ in range(3)]
dist.all_to_all_single(ways[0], mine)
dist.all_to_all_single(ways[1], mine, [1] * 4 + [2] * 2 + [0] * 2, [1] * 4 + [2] * 2 + [0] * 2)
dist.all_to_all(list(ways[2].chunk(8)), list(mine.chunk(8)))
ways.append(functional.all_to_all_single(mine, None, None, dist.group.WORLD))
print("SAYS", [it.tolist() for it in ways])
"""
    )
    ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "h100-80g", "--world-size", "8", "--rank", "3", "--until-exit"))
    assert ran.code == 0, ran
    all_ours = [13] * 8
    assert f"SAYS {[all_ours, [13, 13, 13, 13, 0, 0, 0, 0], all_ours, all_ours]}" in ran.stdout, ran.stdout


RESUMED = """
import os, sys, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
{before}
torch.cuda.set_device(rank)
net = nn.Linear(2048, 2048).cuda(rank)
if rank == 0:
    torch.save(net.state_dict(), "saved.pt")
dist.barrier()
{load}
net = nn.parallel.DistributedDataParallel(net, device_ids=[rank])
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(5):
    opt.zero_grad(); net(torch.randn(8, 2048, device=f"cuda:{{rank}}")).sum().backward(); opt.step()
"""
OPENS_GPU_0 = {
    "a checkpoint without map_location": ("", 'net.load_state_dict(torch.load("saved.pt"))', "torch.load("),
    "a tensor before set_device": ("table = torch.ones(1 << 20).cuda()", "", "table ="),
    "a place without a number": ('device = "cuda"\ntable = torch.ones(1 << 20, device=device)', "", "table ="),
}
OPENS_ITS_OWN = {
    "a checkpoint with map_location": ("", 'net.load_state_dict(torch.load("saved.pt", map_location=f"cuda:{rank}"))'),
    "a tensor with a number": ('table = torch.ones(1 << 20, device=f"cuda:{rank}")', ""),
    "the first rank alone": ("", 'if dist.get_rank() == 0:\n    torch.load("saved.pt")'),
}


def of_gpu_0(plimsoll, before, load, *options):
    plimsoll.script(RESUMED.format(before=before, load=load))
    launcher = (*TORCHRUN, "--nproc-per-node", "2")
    ran = plimsoll.predict(*launcher, "train.py", options=("--gpu", "h100-80g", *options))
    assert ran.code == 0, ran
    return [it for it in ran.report["findings"] if it["code"] == "ranks/first-gpu"]


@pytest.mark.matrix(1)
@pytest.mark.parametrize("what", sorted(OPENS_GPU_0))
def test_a_line_that_opens_gpu_0_in_every_rank_is_named(plimsoll, what):
    """By the first rank, or by another one that ran, too, because it needs another amount."""
    before, load, line = OPENS_GPU_0[what]
    (found,) = of_gpu_0(plimsoll, before, load)
    text = (plimsoll.folder / "train.py").read_text().splitlines()[found["evidence"]["line"]["line"] - 1]
    assert line in text and "opens GPU 0 too" in found["title"], found


@pytest.mark.matrix(1)
@pytest.mark.parametrize("what", sorted(OPENS_ITS_OWN))
def test_a_rank_that_opens_its_own_gpu_is_left_alone(plimsoll, what):
    assert of_gpu_0(plimsoll, *OPENS_ITS_OWN[what]) == []


def test_a_rank_that_has_opened_gpu_0_shows_it(plimsoll):
    before, load, line = OPENS_GPU_0["a tensor before set_device"]
    (found,) = of_gpu_0(plimsoll, before, load, "--rank", "1")
    assert "rank 1, whose GPU is 1, opens GPU 0 too" in found["title"], found


def test_what_runs_out_where_segments_lie_as_by_the_rule_may_fit_where_they_do_not(plimsoll):
    """Of two free blocks of 1,600 MiB the lower one is a segment of its own. Taken, it cannot be given back for the last 2,000 MiB; ranks may have the other one there.
    With less memory no order helps."""
    plimsoll.script("""
import sys, torch
MIB = 1 << 20
total = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction(int(sys.argv[1]) * MIB / total)
weight = torch.nn.Parameter(torch.ones(8, device="cuda"))
optimizer = torch.optim.SGD([weight], 0.1)
block = lambda mib: torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")
first, second = block(2000), block(1600)
del first
first = block(400)
del second
second = block(1600)
third = block(2000)
for _ in range(3):
    weight.sum().backward()
    optimizer.step()
""")
    for limit, verdict in ((4100, "depends"), (3990, "does_not_fit")):
        ran = plimsoll.predict("train.py", limit, options=("--gpu", "rtx4090", "--verdict", "--world-size", "2"))
        assert ran.report["verdict"] == verdict, ran
        if verdict == "depends":
            assert ran.code == 2 and ran.report["undecided"] == "addresses", ran
            assert "runs out at train.py" in ran.stdout and "plimsoll fit --gpu rtx4090" in ran.stdout, ran
