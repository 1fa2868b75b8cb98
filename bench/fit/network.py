"""What devices of one machine send each other, on two real GPUs: collectives by size, and steps of models on both.

    python bench/fit/network.py OUT.jsonl [SECONDS [fresh]]

Steps are those of `unseen.py`, or of `fresh.py`: on one GPU, under DDP with half of the samples each, and under the agent's own `zero1` and
`fsdp2`. Every case is forked from a process that has done the imports.
"""

import json
import os
import runpy
import sys
import tempfile
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), os.environ.get("PLIMSOLL_AGENT") or os.popen("plimsoll agent").read().strip()]
BATCH = {"gqa": 8, "mixer": 96, "convnext": 64, "whisper": 16, "ddpm": 32, "lstm-lm": 128}
FRESH = {"conformer": 48, "vit-large": 8, "dlrm": 16384, "gmlp": 48, "tagger": 128, "gnn": 96, "regnet": 96, "unet-bn": 16}
WORLD = 2


def remedy(name):
    return [{"id": name, "gpus": WORLD}]


def collectives(rank, address, out):
    import torch
    import torch.distributed as dist

    dist.init_process_group("nccl", init_method=address, rank=rank, world_size=WORLD)
    rows = []
    for exponent in range(12, 31, 2):
        size = 1 << exponent
        whole = torch.zeros(size // 4, device="cuda")
        part = torch.zeros(size // 4 // WORLD, device="cuda")
        calls = {
            "allreduce": lambda: dist.all_reduce(whole),
            "allgather": lambda: dist.all_gather_into_tensor(whole, part),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
            "broadcast": lambda: dist.broadcast(whole, 0),
        }
        for name, call in calls.items():
            for _ in range(3):
                call()
            torch.cuda.synchronize()
            times = 5 if size >= 1 << 28 else 20
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            began = time.perf_counter()
            start.record()
            for _ in range(times):
                call()
            host = (time.perf_counter() - began) / times
            end.record()
            torch.cuda.synchronize()
            rows.append([name, size, round(start.elapsed_time(end) / times / 1e3, 9), round(host, 9)])
        del whole, part
    # Beside a product of matrices: what each takes from the other.
    a, whole = torch.randn(8192, 8192, device="cuda"), torch.zeros(1 << 26, device="cuda")
    for name, both in (("products", (1, 0)), ("allreduce", (0, 1)), ("both", (1, 1))):
        for again in range(2):
            torch.cuda.synchronize()
            dist.barrier()
            torch.cuda.synchronize()
            began = time.perf_counter()
            works = [dist.all_reduce(whole, async_op=True) for _ in range(20 * both[1])]
            for _ in range(5 * both[0]):
                a @ a
            for it in works:
                it.wait()
            torch.cuda.synchronize()
            if again:
                rows.append([name, whole.nbytes, round(time.perf_counter() - began, 6), 0])
    with open(out, "w") as file:
        json.dump({"rows": rows}, file)


def ddp(rank, address, model, batch, out):
    import models
    import torch
    import torch.distributed as dist

    torch.manual_seed(rank)
    dist.init_process_group("nccl", init_method=address, rank=rank, world_size=WORLD)
    made, optimizer, samples, loss_of = models.made(model)
    wrapped = torch.nn.parallel.DistributedDataParallel(made, device_ids=[0])
    cells = [cell for cell in loss_of.__closure__ if cell.cell_contents is made]
    for cell in cells:
        cell.cell_contents = wrapped
    assert cells
    seconds, host = [], []
    for _ in range(14):
        torch.cuda.synchronize()
        began = time.perf_counter()
        loss = loss_of(samples(batch // WORLD))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        host.append(round(time.perf_counter() - began, 6))
        torch.cuda.synchronize()
        seconds.append(round(time.perf_counter() - began, 6))
    with open(out, "w") as file:
        json.dump({"all_seconds": seconds, "host_seconds": host, "seconds": sorted(seconds[3:])[5]}, file)


def train(plan, rank, address, model, batch, out):
    if plan:
        import torch
        from plimsoll_agent import remedies
        from plimsoll_agent.remedies.support.hooks import Hooks

        port = address.rpartition(":")[2]
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_WORLD_SIZE=str(WORLD))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        del os.environ["CUDA_VISIBLE_DEVICES"]  # The remedy chooses.
        from steps import Silent

        hooks = Hooks(torch, Silent())
        remedies.apply(torch, json.dumps({"version": 1, "remedies": plan}), hooks)
        hooks.install()
    os.environ["TIMING_LOCK"] = out + ".lock"
    open(out + ".lock", "w").close()
    sys.argv = ["train.py", "--model", model, "--batch-size", str(batch), "--steps", "14", "--out", out]
    runpy.run_path(str(HERE / "train.py"), run_name="__main__")


def cases():
    yield "collectives", "", 0, [lambda rank, address, out: collectives(rank, address, out)] * 2
    for model, batch in (FRESH if "fresh" in sys.argv else BATCH).items():
        def plain(n, model=model):
            return lambda rank, address, out: train([], rank, address, model, n, out)

        yield "plain", model, batch, [plain(batch), plain(batch // 2)]
        yield "zero1", model, batch, [lambda *it, m=model, n=batch: train(remedy("zero1"), *it[:2], m, n, it[2])] * 2
        yield "fsdp2", model, batch, [lambda *it, m=model, n=batch: train(remedy("fsdp2"), *it[:2], m, n, it[2])] * 2
        yield "ddp", model, batch, [lambda *it, m=model, n=batch: ddp(*it[:2], m, n, it[2])] * 2


def main():
    began, most = time.time(), float(sys.argv[2]) if sys.argv[2:] else 100.0
    import steps

    steps.imports()
    with open(sys.argv[1], "w") as told:
        for number, (what, model, batch, ranks) in enumerate(cases()):
            if time.time() - began > most:
                break
            address, running = "tcp://127.0.0.1:%d" % (29510 + number), {}
            for rank, run in enumerate(ranks):
                out = tempfile.mktemp(suffix=".json")
                pid = os.fork()
                if pid == 0:
                    null = os.open(out + ".log", os.O_WRONLY | os.O_CREAT)
                    os.dup2(null, 1)
                    os.dup2(null, 2)
                    os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
                    try:
                        run(rank, address, out)
                    except BaseException:
                        os.write(2, traceback.format_exc()[-600:].encode())
                        os._exit(1)
                    os._exit(0)
                running[pid] = (rank, out)
            until = time.time() + 30
            while running:
                pid, _ = os.waitpid(-1, os.WNOHANG)
                if pid:
                    rank, out = running.pop(pid)
                    row = {"what": what, "model": model, "batch": batch, "rank": rank, "at": round(time.time() - began, 1)}
                    if os.path.exists(out):
                        row.update(json.load(open(out)))
                    else:
                        row["error"] = open(out + ".log", errors="replace").read()[-500:]
                    told.write(json.dumps(row) + "\n")
                    told.flush()
                elif time.time() > until:
                    for pid in running:
                        os.kill(pid, 9)
                    until += 1000
                else:
                    time.sleep(0.02)


if __name__ == "__main__":
    main()
