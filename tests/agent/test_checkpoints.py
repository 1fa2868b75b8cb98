"""A run that trains nothing does not write over what somebody has trained."""

SAVES = """
import os, pathlib, torch
net = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
net(torch.randn(4, 8).cuda()).sum().backward()
optimizer.step()
for file in ("trained.pt", pathlib.Path("new.pt"), "new.pt", "touched.pt"):
    torch.save(net.state_dict(), file)
from safetensors.torch import save_file
net(torch.randn(4, 8).cuda()).sum().backward()
optimizer.step()
save_file({"w": torch.zeros(3)}, "trained.safetensors")
save_file({"w": torch.zeros(3)}, "new.safetensors")
assert torch.load("new.pt").keys() == {"weight", "bias"}
"""


def test_a_checkpoint_that_was_there_stays(plimsoll):
    there = [plimsoll.folder / name for name in ("trained.pt", "trained.safetensors")]
    for file in there:
        file.write_bytes(b"weeks of training")
    (plimsoll.folder / "touched.pt").touch()
    script = plimsoll.script(SAVES)
    ran = plimsoll.predict(script, options=["--gpu", "t4", "--until-exit"])
    assert ran.code == 0, ran
    assert [file.read_bytes() for file in there] == 2 * [b"weeks of training"]
    for name in ("new.pt", "touched.pt", "new.safetensors"):
        assert (plimsoll.folder / name).stat().st_size, name
    (note,) = (it["text"] for it in ran.report["notes"] if it["code"] == "checkpoint-kept")
    assert "trained.pt was there before" in note
