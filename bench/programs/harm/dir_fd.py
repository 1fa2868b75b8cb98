"""Works below open folders: openat, mkdirat, renameat, unlinkat, linkat, symlinkat, fstatat, scandir and fwalk of a descriptor."""
import os

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

folder = os.open("checkpoints", os.O_RDONLY | os.O_DIRECTORY)
here = os.open(".", os.O_PATH)
assert sorted(os.listdir(folder)) == ["best.pt", "last.pt", "step_000500.pt", "step_000600.pt"]
model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(5):
    loss = model(torch.randn(8192, 1024, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with open(os.open("last.new", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644, dir_fd=folder), "wb") as file:
        torch.save({"model": model.state_dict(), "step": step}, file)
    os.replace("last.new", "last.pt", src_dir_fd=folder, dst_dir_fd=folder)
os.mkdir("old", dir_fd=folder)
os.rename("step_000500.pt", "old/500.pt", src_dir_fd=folder, dst_dir_fd=folder)
os.unlink("best.pt", dir_fd=folder)
os.link("last.pt", "linked.pt", src_dir_fd=folder, dst_dir_fd=here)
os.symlink("last.pt", "newest", dir_fd=folder)
os.chmod("step_000600.pt", 0o600, dir_fd=folder)
os.utime("step_000600.pt", ns=(3, 4), dir_fd=folder)
os.rename("precious.txt", "checkpoints/precious.txt", src_dir_fd=here)

assert torch.load("checkpoints/last.pt")["step"] == 4
assert sorted(os.listdir("checkpoints")) == ["last.pt", "newest", "old", "precious.txt", "step_000600.pt"]
assert sorted(it.name for it in os.scandir(folder)) == sorted(os.listdir("checkpoints"))
assert os.stat("step_000600.pt", dir_fd=folder).st_mtime_ns == 4
assert os.path.samefile("linked.pt", "checkpoints/last.pt") and os.readlink("newest", dir_fd=folder) == "last.pt"
assert [names for _, _, names, _ in os.fwalk("old", dir_fd=folder)] == [["500.pt"]]
assert not os.path.exists("precious.txt")
fd = os.open("old", os.O_RDONLY, dir_fd=folder)
os.fchdir(fd)
assert os.listdir() == ["500.pt"] and os.getcwd().endswith("/checkpoints/old")
os.remove("500.pt")
assert os.listdir("../old") == []
print("READ BACK OK")
