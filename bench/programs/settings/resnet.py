import sys, torch, torchvision
from contextlib import nullcontext
from tail import timed, done
name, amp = sys.argv[1], "amp" in sys.argv
torch.manual_seed(0)
model = getattr(torchvision.models, name)().cuda()
for it in model.modules():
    if hasattr(it, "inplace"): it.inplace = False
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
for step in range(8):
    with timed():
        x, y = torch.randn(32, 3, 224, 224, device="cuda"), torch.randint(1000, (32,), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16) if amp else nullcontext():
            loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
done()
