"""NVIDIA's libraries, by the memory that their calls take: on an H200 each of these took what is written here
(`bench/instruments/library_facts.py`, in a process that had already made the libraries' handles)."""

import pytest
from harness import MEASURED

LARGEST = {
    "a bidirectional LSTM of two layers with dropout": (
        [6_488_064, 12_390_272, 48_202_848],
        "m = nn.LSTM(100, 200, 2, bidirectional=True, dropout=0.3).cuda(); x = torch.randn(35, 20, 100, device='cuda')\n"
        "for _ in range(2): y = m(x)[0]; y.float().sum().backward()",
    ),
    "a GRU of three layers in half precision": (
        [6_488_064, 38_640_256, 38_862_592],
        "m = nn.GRU(100, 300, 3, dropout=0.5).cuda().half(); x = torch.randn(50, 64, 100, device='cuda').half()\n"
        "for _ in range(2): y = m(x)[0]; y.float().sum().backward()",
    ),
    "packed sequences": (
        [9_469_952, 14_958_848, 51_675_392],
        "m = nn.LSTM(128, 256, 2, bidirectional=True, batch_first=True).cuda(); x = torch.randn(16, 64, 128, device='cuda')\n"
        "p = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([max(1, 64 - 3 * i) for i in range(16)]), batch_first=True)\n"
        "for _ in range(2): y = m(p)[0]; y = nn.utils.rnn.pad_packed_sequence(y, batch_first=True)[0]; y.float().sum().backward()",
    ),
    "an LSTM with projections": (
        [1_458_176, 8_847_616, 22_266_240],
        "m = nn.LSTM(128, 256, 2, proj_size=64).cuda(); x = torch.randn(40, 16, 128, device='cuda')\n"
        "for _ in range(2): y = m(x)[0]; y.float().sum().backward()",
    ),
}
"""The three largest allocations of two training steps: workspace, reserve space, weights or gradients."""

PEAKS = {
    "CTC loss by cuDNN": (
        18_487_296,
        "x = torch.randn(120, 32, 37, device='cuda', requires_grad=True).log_softmax(2)\n"
        "y = torch.randint(1, 37, (800,), dtype=torch.int32, device='cuda')\n"
        "n = lambda it: torch.full((32,), it, dtype=torch.int32)\n"
        "try: F.ctc_loss(x, y, n(120), n(25), blank=0)\n"
        "except RuntimeError: pass  # torch 2.11 mixes devices after cuDNN's part, on a real GPU too",
    ),
    "the inverse of a matrix": (165_888, "torch.linalg.inv(positive(100))"),
    "a Cholesky factor": (4_194_304, "torch.linalg.cholesky(positive(512))"),
    "singular values": (280_576, "torch.linalg.svd(torch.randn(100, 100, device='cuda'), full_matrices=False)"),
    "eigenvalues of a symmetric matrix": (161_792, "torch.linalg.eigh(positive(100))"),
    "eigenvalues of any matrix": (158_720, "torch.linalg.eig(torch.randn(32, 32, device='cuda'))"),
    "batched QR": (194_560, "torch.linalg.qr(torch.randn(4, 39, 32, device='cuda'))"),
    "a long Fourier transform": (25_165_824, "torch.fft.fft(torch.randn(1 << 20, dtype=torch.complex64, device='cuda'))"),
}


@pytest.mark.matrix(1)
@pytest.mark.parametrize("name", LARGEST)
def test_a_recurrent_network_asks_for_what_it_asked_on_an_h200(phantom, name):
    largest, calls = LARGEST[name]
    ran = phantom(
        f"""
        import json, torch
        from torch import nn

        torch.cuda.memory._record_memory_history()
        exec({calls!r})
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
        print(json.dumps(sorted({{it["size"] for it in trace if it["action"] == "alloc"}})[-3:]))
        """
    )
    assert ran.values == largest
    assert ran.not_imitated == set()


@MEASURED
@pytest.mark.parametrize("name", PEAKS)
def test_a_call_takes_what_it_took_on_an_h200(phantom, name):
    peak, calls = PEAKS[name]
    ran = phantom(
        f"""
        import gc, json, torch
        from torch import nn
        import torch.nn.functional as F

        def positive(n):
            a = torch.randn(n, n, device="cuda")
            return a @ a.mT + n * torch.eye(n, device="cuda")

        calls = {calls!r}
        for _ in range(2):
            gc.collect()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            exec(calls, globals() | {{}})
        print(json.dumps(torch.cuda.max_memory_allocated() - before))
        """
    )
    assert ran.values == peak
    assert ran.not_imitated == set()


@pytest.mark.soak
def test_a_sparse_product_has_its_work_area(phantom):
    ran = phantom(
        """
        import json, torch
        rows, per = 1000, 6
        offsets = torch.arange(0, (rows + 1) * per, per).cuda()
        columns = (torch.arange(rows)[:, None] % 83 + torch.arange(per) * 83).flatten().cuda()
        a = torch.sparse_csr_tensor(offsets, columns, torch.ones(rows * per, device="cuda"), (rows, 500))
        x = torch.randn(500, 64, device="cuda")
        torch.cuda.memory._record_memory_history()
        a @ x
        sizes = [it["size"] for it in torch.cuda.memory._snapshot()["device_traces"][0] if it["action"] == "alloc"]
        print(json.dumps(sizes))
        """
    )
    assert ran.values == [256_000, 256_000, 2007]


def test_a_mask_from_the_host_is_counted_truly(phantom):
    ran = phantom(
        """
        import json, torch
        mask = (torch.arange(5000) % 5 == 0).cuda()
        x = torch.empty(5000, 8, device="cuda").log_normal_()
        print(json.dumps([len(x[mask]), len(mask.nonzero()), len(torch.empty(100, device="cuda").log_normal_().nonzero())]))
        """
    )
    assert ran.values == [1000, 1000, 0]
    assert any("--assume nonzero" in it for it in ran.approximated)


def test_a_router_spreads_its_tokens_evenly(phantom):
    ran = phantom(
        """
        import json, torch
        chosen = torch.randn(4096, 8, device="cuda").softmax(-1).topk(2, -1).indices
        print(json.dumps([len(torch.where(chosen == i)[0]) for i in range(8)]))
        """
    )
    assert sum(ran.values) == 4096 * 2
    assert all(900 < it < 1150 for it in ran.values) and 3 < len(set(ran.values)), ran.values


def test_a_stream_keeps_its_priority(phantom):
    ran = phantom(
        """
        import json, torch
        print(json.dumps([torch.cuda.Stream(priority=p).priority for p in (0, -1)]))
        """
    )
    assert ran.values == [0, -1]
