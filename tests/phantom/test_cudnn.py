"""The workspaces that cuDNN asks for on a phantom H200, against those that it asked for on a real one."""

import json

import pytest
from harness import MEASURED as AGAINST_A_GPU
from harness import ROOT

FIXTURE = ROOT / "fixtures" / "cudnn" / "h200.json"
MEASURED = json.loads(FIXTURE.read_text())

# In clusters of 3 and 6 multiprocessors: what PyTorch took for them on the real GPU.
IN_THREES = ROOT / "fixtures" / "cudnn" / "h200-unet.json"

# The very questions that were asked on the real GPU.
ASK = """
import json, sys, torch
sys.path.insert(0, {bench!r})
import cudnn_plans
torch.zeros(1, device="cuda")
cudnn = cudnn_plans.Cudnn()
out = []
for it in json.load(open({fixture!r})):
    ask = lambda name: cudnn_plans.plans(cudnn, it, name, cudnn_plans.TYPES[it["type"]], it["layout"], 1)
    out.append({{name: next(plan for plan in ask(name) if "workspace" in plan) for name in it["workspaces"]}})
print(json.dumps(out))
"""


def asked(fixture):
    return ASK.format(bench=str(ROOT / "bench" / "instruments"), fixture=str(fixture))


# Engines that are a matrix product of cublasLt. It says how much they need beside their own 400 bytes, and the
# phantom's has no split-K: such an engine may come out too small.
OF_CUBLASLT = {58, 62}


@AGAINST_A_GPU
def test_the_first_plan_is_the_one_of_the_real_card(phantom):
    answers = phantom(asked(FIXTURE)).values
    wrong, too_small, n = [], [], 0
    for it, found in zip(MEASURED, answers, strict=True):
        for operation, workspace in it["workspaces"].items():
            n += 1
            engine, plan = it["engines"][operation], found[operation]
            row = (it["type"], it["layout"], it["x"], it["w"], operation, workspace, engine, plan)
            if engine in OF_CUBLASLT and plan["engine"] == engine and plan["workspace"] + 512 < workspace:
                too_small.append(row)
            elif plan["engine"] != engine or 512 < abs(plan["workspace"] - workspace):
                wrong.append(row)
    assert n == 120
    assert not wrong, "\n".join(map(str, wrong))
    # 9 MiB of 2.1 GiB, all together.
    assert len(too_small) <= 4 and sum(row[5] for row in too_small) < 10 << 20, "\n".join(map(str, too_small))


@AGAINST_A_GPU
def test_clusters_of_three_and_six_find_as_much_room_as_on_the_real_card(phantom):
    measured = [it["workspaces"] for it in json.loads(IN_THREES.read_text())]
    found = [{name: plan["workspace"] for name, plan in it.items()} for it in phantom(asked(IN_THREES)).values]
    assert found == measured


def test_torch_takes_that_workspace(phantom):
    """From the allocator that it asks for everything else, for as long as the convolution runs."""
    shape = next(it for it in MEASURED if it["type"] == "float32" and it["g"] == 1 and 50 << 20 < it["workspaces"]["forward"])
    ran = phantom(
        f"""
        import json, torch
        it = {shape!r}
        x, w = (torch.empty(it[name], device="cuda") for name in "xw")
        torch.cuda.reset_peak_memory_stats()
        y = torch.nn.functional.conv2d(x, w, None, it["s"], it["p"], it["d"], it["g"])
        stats = torch.cuda.memory_stats()
        print(json.dumps(stats["requested_bytes.all.peak"] - stats["requested_bytes.all.current"]))
        """
    )
    assert ran.values == pytest.approx(shape["workspaces"]["forward"], abs=512)


# Channels and side of 36 pictures; what the H200 kept from forward to backward, and took for backward.
NORMS = [(16, 96, 1071260, 1770532), (128, 96, 2141448, 3540008), (256, 48, 1072304, 1770544)]


def test_batch_normalization_of_channels_last_halves_takes_what_the_real_one_took(phantom):
    ran = phantom(
        f"""
        import json, torch
        taken = []
        for channels, side, *_ in {NORMS!r}:
            x = torch.empty(36, channels, side, side, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last)
            norm = torch.nn.BatchNorm2d(channels).cuda()
            torch.cuda.memory._record_memory_history(context=None, stacks="python", clear_history=True)
            y = norm(x.requires_grad_())
            forward = len(torch.cuda.memory._snapshot()["device_traces"][0])
            torch.autograd.backward(y, torch.empty_like(y))
            made = [it["size"] if it["action"] == "alloc" else 0 for it in torch.cuda.memory._snapshot()["device_traces"][0]]
            large = lambda sizes: [it for it in sizes if 8 * channels < it < 2 * x.numel()]
            taken.append((channels, side, *large(made[:forward]), *large(made[forward:])))
        print(json.dumps(taken))
        """
    )
    assert [tuple(it) for it in ran.values] == NORMS


def test_attention_is_compiled_by_nobody(phantom, tmp_path):
    """cuDNN compiles a kernel for each shape; nothing is launched, so it gets a compiler that makes nothing.
    What torch compiles it keeps for real runs, so torch gets the real one."""
    ran = phantom(
        f"""
        import json, os, torch
        import torch.nn.functional as F
        from torch.nn.attention import SDPBackend, sdpa_kernel

        os.environ["PYTORCH_KERNEL_CACHE_PATH"] = {str(tmp_path)!r}
        q = torch.empty(2, 4, 256, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            out = F.scaled_dot_product_attention(q, q, q, is_causal=True)
            out.sum().backward()
        torch.special.airy_ai(torch.ones(4, device="cuda"))
        print(json.dumps([type(out.grad_fn).__name__, "libplimsoll_nvrtc.so" in open("/proc/self/maps").read()]))
        """
    )
    assert ran.values == ["ScaledDotProductCudnnAttentionBackward0", True]
    (kept,) = tmp_path.iterdir()
    assert kept.stat().st_size > 1000, "machine code with a kernel in it"
