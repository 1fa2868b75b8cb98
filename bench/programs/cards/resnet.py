import torch, torchvision
torch.backends.cudnn.benchmark = False
net = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last); opt = torch.optim.SGD(net.parameters(), lr=.1, momentum=.9)
for _ in range(10):
    x = torch.randn(48, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    with torch.autocast("cuda", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(net(x), torch.randint(0, 1000, (48,), device="cuda"))
    loss.backward(); opt.step(); opt.zero_grad()
