"""Trains until the validation loss stands still, keeps the best state, then a solver until its residual is small."""
import copy, torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 1)).cuda()
opt = torch.optim.AdamW(net.parameters(), 1e-3); plan = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1)
w = torch.randn(256, 1)
X = torch.randn(8192, 256); Y = X @ w
X, Y = X.cuda(), Y.cuda(); Xv, Yv = X[:1024], Y[:1024]
best, bad, state = float("inf"), 0, None
for epoch in range(60):
    for i in range(1024, len(X), 1024):
        loss = nn.functional.mse_loss(net(X[i:i + 1024]), Y[i:i + 1024])
        opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad(): val = nn.functional.mse_loss(net(Xv), Yv).item()
    plan.step(val)
    if val < best - 1e-3: best, bad, state = val, 0, copy.deepcopy(net.state_dict())
    else: bad += 1
    if bad >= 3: break
net.load_state_dict(state)
A = torch.randn(2048, 2048, device="cuda"); A = A @ A.t() / 2048 + torch.eye(2048, device="cuda")
b = torch.randn(2048, device="cuda"); x = torch.zeros_like(b); r = b - A @ x; p = r.clone(); rs = r @ r; history = []; it = 0
while rs.sqrt() > 1e-4 and it < 500:
    Ap = A @ p; alpha = rs / (p @ Ap); x = x + alpha * p; r = r - alpha * Ap
    new = r @ r; p = r + (new / rs) * p; rs = new; it += 1; history.append(x)
print(epoch, best, it, rs.item())
