"""Shell lines as people put them into subprocess: redirection, mv, rm -r, sed -i, tar, cp --reflink, dd, tee, touch, ln, find -delete."""
import os
import subprocess

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)


def shell(line):
    return subprocess.run(["bash", "-ec", line], check=True, capture_output=True, text=True).stdout


assert "name: first" in open("config.yaml").read(), "somebody edited this file before"
shell("mkdir -p logs && date > logs/started.txt && echo more >> train.log")
shell("mv metrics.json logs/ && mv -f checkpoints/step_000500.pt checkpoints/kept.pt")
shell("rm -rf output/old && rm -f best.txt && find data -name 'part-1*' -delete")
shell("sed -i 's/name: first/name: second/' config.yaml")
shell("tar czf old.tgz checkpoints data && tar xzf old.tgz -C logs")
shell("cp --reflink=auto -p raw.bin raw.copy && cp -a 'notes and étude' copied && cp precious.txt secret.copy")
shell("dd if=/dev/zero of=raw.bin bs=4096 count=4 conv=notrunc status=none")
shell("ln -sfn checkpoints/kept.pt latest && ln precious.txt precious.link && touch -d '2001-01-01' empty.txt")
shell("sort data/part-0.txt -o data/part-0.txt; split -l 50 data/part-0.txt data/piece-; cat data/piece-* > data/joined.txt")
os.system("echo done | tee logs/done.txt > /dev/null; chmod 600 tool.sh")
model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(5):
    loss = model(torch.randn(8192, 1024, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with os.popen(f"echo step {step} >> logs/steps.txt; wc -l < logs/steps.txt") as pipe:
        assert int(pipe.read()) == step + 1

assert shell("cat config.yaml | grep name") == "name: second\n" and open("config.yaml").read().count("second") == 1
assert not os.path.exists("best.txt") and not os.path.exists("output/old") and not os.path.exists("data/part-1.txt")
assert open("raw.bin", "rb").read(4096 * 4) == bytes(4096 * 4) and open("raw.copy", "rb").read(64) != bytes(64)
assert os.path.getsize("raw.bin") == os.path.getsize("raw.copy") == 4 << 20
assert os.readlink("latest") == "checkpoints/kept.pt" and os.stat("precious.txt").st_nlink == 2
assert open("logs/data/part-0.txt").read() != "" and len(open("data/joined.txt").readlines()) == 200
assert sorted(os.listdir("copied")) == sorted(os.listdir("notes and étude")) and os.stat("empty.txt").st_mtime < 10**9
print("READ BACK OK")
