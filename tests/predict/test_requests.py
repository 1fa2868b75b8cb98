"""What to ask a scheduler for: lines to paste, and the host's memory that is in them."""

import pytest

LOADER = """
import time, torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 640
    def __getitem__(self, i): return torch.full((1 << 18,), float(i))
if __name__ == "__main__":
    held = torch.ones(50 << 20)
    net = torch.nn.Linear(1 << 18, 4).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in torch.utils.data.DataLoader(Data(), batch_size=32, num_workers=2):
        net(x.cuda()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.1)
"""


@pytest.mark.soak
def test_a_request_has_the_slice_and_the_hosts_memory(plimsoll):
    (plimsoll.folder / "load.py").write_text(LOADER)
    ran = plimsoll.predict("load.py", options=("--gpu", "a100-80g/3g.40gb", "--as", "kubernetes", "--until-exit"), environment=plimsoll.cold())
    assert ran.code == 0, ran
    text = ran.stdout
    assert "nvidia.com/mig-3g.40gb: 1" in text and "nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB" in text, text
    # Two workers with two batches of 32 MiB each ahead, and 200 MiB of the script's own.
    shared, peak = ran.report["shm_bytes"], ran.report["host_peak_bytes"]
    assert 64 << 20 <= shared <= 200 << 20, shared
    assert shared + (200 << 20) < peak, peak


PINNED = """
import torch
held = torch.empty(4 << 30, dtype=torch.uint8, pin_memory=True)
away = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
away.copy_(torch.ones(1 << 30, dtype=torch.uint8, device="cuda"))
import time; time.sleep(0.6)
"""


@pytest.mark.soak
def test_pinned_memory_counts_whole_though_nobody_touched_it(plimsoll):
    (plimsoll.folder / "pinned.py").write_text(PINNED)
    ran = plimsoll.predict("pinned.py", options=("--gpu", "h200", "--as", "slurm", "--until-exit"), environment=plimsoll.cold())
    assert ran.code == 0, ran
    assert 5 << 30 <= ran.report["host_peak_bytes"] <= 6 << 30, ran.report["host_peak_bytes"]
    assert ran.report["shm_bytes"] == 0


def test_a_card_without_kernels_is_told_with_the_version_that_has_some(plimsoll):
    (plimsoll.folder / "one.py").write_text("import torch; torch.ones(1, device='cuda').add_(1)")
    ran = plimsoll.predict("one.py", options=("--gpu", "v100"))
    assert ran.code == 2 and "torch==2.7.*" in ran.stderr, ran.stderr
