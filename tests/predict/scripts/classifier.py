
import os, time, torch, torch.nn as nn
from torch.utils.data import DataLoader, Dataset
import torchvision
class Fake(Dataset):
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i): return torch.randn(3, 64, 64), i % 100
def accuracy(out, y): return (out.argmax(1) == y).float().mean().item()
def train_one_epoch(model, loader, opt, sched, scaler, crit, device, accum=4):
    model.train(); running = 0.0
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        with torch.amp.autocast("cuda"):
            out = model(x); loss = crit(out, y) / accum
        scaler.scale(loss).backward()
        if (step + 1) % accum == 0:
            scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt); scaler.update(); opt.zero_grad(); sched.step()
        running += loss.item() * accum
        if step % 10 == 0: print(f"step {step} loss {running/(step+1):.4f} mem {torch.cuda.max_memory_allocated()/1e9:.2f} GB")
    return running / len(loader)
@torch.no_grad()
def validate(model, loader, crit, device):
    model.eval(); tot = 0; acc = 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        out = model(x); tot += crit(out, y).item(); acc += accuracy(out, y)
    return tot / len(loader), acc / len(loader)
def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = torchvision.models.resnet34(num_classes=100).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=100)
    scaler = torch.amp.GradScaler("cuda"); crit = nn.CrossEntropyLoss()
    tl = DataLoader(Fake(640), 32, shuffle=True, num_workers=2, pin_memory=True); vl = DataLoader(Fake(128), 64, num_workers=2, pin_memory=True)
    best = 0
    for epoch in range(2):
        tr = train_one_epoch(model, tl, opt, sched, scaler, crit, device)
        vl_, acc = validate(model, vl, crit, device)
        print(f"epoch {epoch} train {tr:.4f} val {vl_:.4f} acc {acc:.4f}")
        if acc >= best:
            best = acc; os.makedirs("checkpoints", exist_ok=True)
            torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, "checkpoints/best.pt")
if __name__ == "__main__": main()
