
import torch, torch.nn as nn
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
nz, ngf, ndf, nc = 100, 64, 64, 3
def weights_init(m):
    c = m.__class__.__name__
    if c.find("Conv") != -1: nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif c.find("BatchNorm") != -1: nn.init.normal_(m.weight.data, 1.0, 0.02); nn.init.constant_(m.bias.data, 0)
netG = nn.Sequential(nn.ConvTranspose2d(nz, ngf*8, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf*8), nn.ReLU(True),
 nn.ConvTranspose2d(ngf*8, ngf*4, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf*4), nn.ReLU(True),
 nn.ConvTranspose2d(ngf*4, ngf*2, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf*2), nn.ReLU(True),
 nn.ConvTranspose2d(ngf*2, ngf, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),
 nn.ConvTranspose2d(ngf, nc, 4, 2, 1, bias=False), nn.Tanh()).to(device).apply(weights_init)
netD = nn.Sequential(nn.Conv2d(nc, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True),
 nn.Conv2d(ndf, ndf*2, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf*2), nn.LeakyReLU(0.2, True),
 nn.Conv2d(ndf*2, ndf*4, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf*4), nn.LeakyReLU(0.2, True),
 nn.Conv2d(ndf*4, ndf*8, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf*8), nn.LeakyReLU(0.2, True),
 nn.Conv2d(ndf*8, 1, 4, 1, 0, bias=False), nn.Sigmoid()).to(device).apply(weights_init)
crit = nn.BCELoss(); fixed = torch.randn(64, nz, 1, 1, device=device)
oD = torch.optim.Adam(netD.parameters(), 2e-4, (0.5, 0.999)); oG = torch.optim.Adam(netG.parameters(), 2e-4, (0.5, 0.999))
imgs, G_losses, D_losses, it = [], [], [], 0
for epoch in range(5):
    for i in range(50):
        data = torch.randn(128, 3, 64, 64)
        netD.zero_grad(); real = data.to(device); b = real.size(0)
        label = torch.full((b,), 1., device=device); out = netD(real).view(-1); eD = crit(out, label); eD.backward(); D_x = out.mean().item()
        noise = torch.randn(b, nz, 1, 1, device=device); fake = netG(noise); label.fill_(0.)
        out = netD(fake.detach()).view(-1); eF = crit(out, label); eF.backward(); oD.step()
        netG.zero_grad(); label.fill_(1.); out = netD(fake).view(-1); eG = crit(out, label); eG.backward(); oG.step()
        if i % 50 == 0: print("[%d/5][%d/50] Loss_D: %.4f Loss_G: %.4f D(x): %.4f" % (epoch, i, (eD+eF).item(), eG.item(), D_x))
        G_losses.append(eG.item()); D_losses.append((eD+eF).item())
        if it % 500 == 0:
            with torch.no_grad(): imgs.append(netG(fixed).detach().cpu())
        it += 1
