"""A script that logs and uploads runs on a phantom, and nothing leaves the machine."""

import pytest
from harness import COLD

SCRIPT = """
import wandb, torch
from huggingface_hub.hf_api import create_repo
layer = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.Adam(layer.parameters())
wandb.init(project="mine")
create_repo("me/model")
for _ in range(4):
    optimizer.zero_grad(); layer(torch.ones(8, 256, device="cuda")).sum().backward(); optimizer.step()
"""
WANDB = """
def init(project=None, mode="online"):
    if mode != "disabled": raise SystemExit("sent")
login = None
"""
HUB = """
class RepoUrl(str): pass
class CommitInfo: pass
class HfApi:
    endpoint = "https://hub"
    def create_repo(self, repo_id): raise SystemExit("sent")
api = HfApi()
create_repo = api.create_repo
"""
NOTES = ["plimsoll turned wandb off: it sent nothing", "plimsoll turned huggingface_hub off: it sent nothing"]


def packages(plimsoll):
    plimsoll.script(WANDB, "wandb.py")
    (plimsoll.folder / "huggingface_hub").mkdir()
    plimsoll.script("", "huggingface_hub/__init__.py")
    plimsoll.script(HUB, "huggingface_hub/hf_api.py")
    plimsoll.script(SCRIPT)


def test_trackers_and_hubs_are_kept_off_and_named(plimsoll):
    packages(plimsoll)
    ran = plimsoll.predict(COLD, "train.py", options=["--gpu", "t4"])
    assert ran.code == 0, ran
    assert [it["text"] for it in ran.report["notes"] if it["code"] == "kept-off"] == NOTES


@pytest.mark.soak
def test_and_in_words_and_in_each_run_of_a_search(plimsoll):
    packages(plimsoll)
    ran = plimsoll.run("predict", "--full", "--gpu", "t4", "--", COLD, "train.py")
    assert all(f"  - {it}\n" in ran.stdout for it in NOTES), ran
    ran = plimsoll.run("fit", "--gpu", "t4", "--", COLD, "train.py")
    assert ran.code == 0 and "FITS" in ran.stdout, ran
