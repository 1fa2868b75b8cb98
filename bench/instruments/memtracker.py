"""PyTorch's own estimate of a case: MemTracker under fake tensors, as shipped (no GPU, no tuning).

`accuracy.py` calls it: memtracker.py CASE.json OUT.json
The model, the optimizer and the loop are those of workloads.py; the tensors are fake CPU tensors.
"""
import contextlib
import json
import os
import sys

if len(sys.argv) != 3:
    sys.exit(__doc__)
sys.argv, arguments = [sys.argv[0]], sys.argv[1:]


def load_workloads():
    """workloads.py without its last line, which runs it."""
    path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "programs", "workloads.py")
    source = open(path).read()
    head, call, tail = source.rpartition("\nmain()")
    assert call and not tail.strip(), "workloads.py ends by calling main()"
    names = {}
    exec(compile(head, path, "exec"), names)
    return names


def main(case_path, out_path):
    import torch
    import torch.nn.functional as F
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    case = json.load(open(case_path))
    work = load_workloads()
    kind, batch_size, precision = case["model"], case["batch"], case.get("precision", "fp32")
    with FakeTensorMode(allow_non_fake_inputs=True):
        if kind == "lstm":
            model = work["lstm"]()
        elif kind.startswith("seed-"):
            model = work["seed_cnn"](kind)
        else:
            model = work["vision"](kind) if "/" in kind else work["llm"](kind)
        if kind == "seed-deepcnn":
            model(torch.zeros(1, 3, 64, 64))
        if precision == "bf16":
            model = model.to(torch.bfloat16)
        model.train()
        if case.get("checkpoint"):
            model.config.use_cache = False
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        optimizer = work["optimizer"](case.get("optimizer", "adamw"), model.parameters())
        autocast = contextlib.nullcontext
        if precision.startswith("amp"):
            dtype = torch.float16 if precision == "amp-fp16" else torch.bfloat16
            autocast = lambda: torch.autocast("cpu", dtype)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            for step in range(2):
                optimizer.zero_grad(set_to_none=True)
                seq = case["seqs"][step % len(case["seqs"])] if "seqs" in case else case.get("seq", 128)
                if "seqs" in case:
                    seq = max(case["seqs"])
                for _ in range(case.get("accumulate", 1)):
                    with autocast():
                        if kind == "lstm":
                            x = torch.randint(0, 20000, (batch_size, seq))
                            loss = F.cross_entropy(model(x).flatten(0, 1), x.flatten())
                        elif kind == "seed-mlp":
                            loss = F.cross_entropy(model(torch.randn(batch_size, 1000)), torch.randint(0, 10, (batch_size,)))
                        elif "/" in kind or kind.startswith("seed-"):
                            image = case.get("image", 224 if "/" in kind else 64)
                            x = torch.randn(batch_size, 3, image, image)
                            x = x.to(torch.bfloat16) if precision == "bf16" else x
                            out = model(x)
                            loss = F.cross_entropy(getattr(out, "logits", out), torch.randint(0, 10, (batch_size,)))
                        else:
                            x = torch.randint(0, min(model.config.vocab_size, 20000), (batch_size, seq))
                            loss = model(input_ids=x, labels=x).loss
                    loss.backward()
                    tracker.reset_mod_stats()  # its own example does so between iterations
                optimizer.step()
    peak = tracker.get_tracker_snapshot("peak")
    total = max(sum(v for k, v in device.items() if str(k).endswith("Total")) for device in peak.values())
    json.dump({"peak": total}, open(out_path, "w"))


main(*arguments)
