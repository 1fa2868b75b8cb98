"""A script that changes the allocator's settings while it runs, as vLLM does around loading: each moment is replayed under its own settings."""

import json

SCRIPT = """
import torch

def set(text):
    torch._C._accelerator_setAllocatorSettings(text)

def blocks(*mib):
    return [torch.empty(it << 20, dtype=torch.uint8, device="cuda") for it in mib]

kept = blocks(3, 60)
set("max_split_size_mb:20")
kept += blocks(30, 7, 25, 90)
del kept[1:3]
kept += blocks(22, 40, 8, 24)
set("max_split_size_mb:17592186044415")
kept += blocks(5, 30, 21)
set("roundup_power2_divisions:4")
kept += blocks(33, 100)
set("expandable_segments:True")
kept += blocks(45, 70)
del kept[::2]
kept += blocks(12, 50, 200)
net = torch.nn.Linear(1000, 1000).cuda()
for _ in range(3):
    net(torch.zeros(50, 1000, device="cuda")).sum().backward()
"""


def test_every_event_is_explained_by_the_settings_of_its_moment(plimsoll):
    plimsoll.script(SCRIPT)
    recording = plimsoll.folder / "it.zip"
    ran = plimsoll.predict("train.py", options=("--gpu", "h100-80g", "--until-exit", "--record", recording))
    assert ran.code == 0, ran
    replayed = json.loads(plimsoll.run("replay", recording, "--json", "-").stdout)
    assert replayed["mismatches"] == 0, replayed
    assert "match" not in "".join(it["text"] for it in ran.report["notes"]), ran.report["notes"]
