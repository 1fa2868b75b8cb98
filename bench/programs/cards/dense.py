import torch, torchvision
torch.backends.cuda.matmul.allow_tf32 = True
net = torchvision.models.densenet121().cuda().to(memory_format=torch.channels_last); opt = torch.optim.SGD(net.parameters(), lr=.1, momentum=.9)
scaler = torch.amp.GradScaler()
for _ in range(10):
    x = torch.randn(24, 3, 192, 192, device="cuda").to(memory_format=torch.channels_last)
    with torch.autocast("cuda", torch.float16):
        loss = torch.nn.functional.cross_entropy(net(x), torch.randint(0, 1000, (24,), device="cuda"))
    scaler.scale(loss).backward(); scaler.step(opt); scaler.update(); opt.zero_grad()
