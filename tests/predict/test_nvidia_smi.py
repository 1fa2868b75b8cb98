"""Scripts that run `nvidia-smi`, which a machine without a GPU lacks."""

SCRIPT = """
import subprocess, torch

x = torch.zeros(64 << 20, device="cuda")
ask = ["nvidia-smi", "--query-gpu=index,name,memory.used,power.draw", "--format=csv,noheader,nounits"]
print("SAYS", subprocess.check_output(ask, text=True).strip())
print("LISTS", subprocess.check_output("nvidia-smi -L", shell=True, text=True).strip())
"""


def test_nvidia_smi_tells_of_the_phantom(plimsoll):
    (plimsoll.folder / "ask.py").write_text(SCRIPT)
    ran = plimsoll.predict("ask.py", options=("--gpu", "rtx4090", "--until-exit"))
    assert ran.code == 0, ran
    (said,) = (it[5:] for it in ran.stdout.splitlines() if it.startswith("SAYS "))
    index, name, used, power = said.split(", ")
    assert (index, name, power) == ("0", "NVIDIA GeForce RTX 4090", "[N/A]"), said
    assert int(used) < 24_000, said
    (listed,) = (it[6:] for it in ran.stdout.splitlines() if it.startswith("LISTS "))
    assert listed.startswith("GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-"), listed
