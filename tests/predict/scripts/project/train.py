
import argparse, csv, torch
from model import Net
p = argparse.ArgumentParser(); p.add_argument("--data", default="data/train.csv"); p.add_argument("--epochs", type=int, default=3); p.add_argument("--lr", type=float, required=True); p.add_argument("--device", default="cuda")
a = p.parse_args()
rows = list(csv.DictReader(open(a.data)))
x = torch.tensor([[float(r["a"]), float(r["b"])] for r in rows]); y = torch.tensor([int(r["y"]) for r in rows])
net = Net().to(a.device); opt = torch.optim.AdamW(net.parameters(), a.lr)
best = float("inf")
for e in range(a.epochs):
    for i in range(0, len(x), 64):
        xb, yb = x[i:i+64].to(a.device), y[i:i+64].to(a.device)
        loss = torch.nn.functional.cross_entropy(net(xb), yb); opt.zero_grad(); loss.backward(); opt.step()
    if loss.item() < best: best = loss.item(); torch.save(net.state_dict(), "best.pt")
    print(e, loss.item())
