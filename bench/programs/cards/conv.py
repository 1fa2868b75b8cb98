import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(3,64,7,2,3), torch.nn.BatchNorm2d(64), torch.nn.ReLU(), torch.nn.Conv2d(64,128,3,2,1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(128*64, 1000)).cuda()
opt = torch.optim.AdamW(net.parameters())
for step in range(6):
    x = torch.randn(16,3,224,224, device="cuda"); y = torch.randint(0,1000,(16,),device="cuda")
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward(); opt.step(); opt.zero_grad()
