"""Each phase of a run has its peak: also what libraries save and merge, which the agent marks. And the driver that lends the host's memory."""

SCRIPT = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    net(torch.randn(256, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
net.eval()
with torch.no_grad():
    net(torch.randn(8192, 1024, device="cuda"))
from peft.tuners.tuners_utils import BaseTuner
from transformers.modeling_utils import PreTrainedModel
BaseTuner().merge_and_unload(net)
PreTrainedModel().save_pretrained(net)
"""
LIBRARIES = {
    "peft/tuners/tuners_utils.py": "class BaseTuner:\n    def merge_and_unload(self, net):\n        return [it @ it.T for it in net.parameters() if it.ndim == 2]\n",
    "transformers/modeling_utils.py": "class PreTrainedModel:\n    def save_pretrained(self, net):\n        return [it.clone().cpu() for it in net.parameters()]\n",
}


def write(plimsoll):
    for name, text in LIBRARIES.items():
        file = plimsoll.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        for folder in (file.parent, *file.parent.parents):
            if folder == plimsoll.folder:
                break
            (folder / "__init__.py").touch()
        file.write_text(text)
    (plimsoll.folder / "phases.py").write_text(SCRIPT)


def test_each_phase_has_its_peak_saving_and_merging_too(plimsoll):
    write(plimsoll)
    ran = plimsoll.predict("phases.py", options=("--gpu", "rtx4090", "--until-exit"))
    phases = {it["phase"]: it for it in ran.report["phases"]}
    assert list(phases) == ["loading", "first_step", "later_steps", "first_evaluation", "merging", "saving"], ran
    assert phases["first_evaluation"]["allocated_bytes"] == ran.report["peak_allocated_bytes"]
    assert ran.report["deciding_phase"] == "first_evaluation"
    # The product of the first weight with itself, 4096 x 4096.
    assert phases["merging"]["allocated_bytes"] - phases["loading"]["allocated_bytes"] >= 64 << 20
    assert phases["merging"]["at"]["file"].endswith("tuners_utils.py")


def test_under_windows_a_run_that_does_not_fit_spills(plimsoll):
    write(plimsoll)
    plain = plimsoll.predict("phases.py", options=("--gpu", "rtx4090", "--until-exit"))
    memory = "%dB" % (plain.report["peak_device_bytes"] + (8 << 20))
    on_linux = plimsoll.predict("phases.py", options=("--gpu", "rtx4090", "--memory", memory, "--until-exit"))
    assert on_linux.report["verdict"] == "fits"
    assert on_linux.report["spilled_bytes"] is None
    spills = plimsoll.predict("phases.py", options=("--gpu", "rtx4090", "--memory", memory, "--windows", "--until-exit"))
    assert (spills.code, spills.report["verdict"], spills.report["outcome"]) == (1, "spills", "fits"), spills
    assert spills.report["peak_device_bytes"] == plain.report["peak_device_bytes"]
    assert spills.report["spilled_bytes"] > 0
    assert "--windows" in spills.report["next_command"]
