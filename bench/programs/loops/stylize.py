"""Neural style: what is trained is a picture, by L-BFGS with a closure; the network is frozen and cut at some layers."""

import torch
import torch.nn.functional as F
import torchvision

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
size, steps = 1536, 4


def gram(x):
    n, c, h, w = x.shape
    flat = x.reshape(n * c, h * w)
    return flat @ flat.T / (n * c * h * w)


vgg = torchvision.models.vgg19(weights=None).features.to(device).eval().requires_grad_(False)
layers = list(vgg.children())[:29]


def features(x):
    found = []
    for i, layer in enumerate(layers):
        x = layer(x)
        if i in (0, 5, 10, 19, 28):
            found.append(x)
    return found


content, style = torch.rand(1, 3, size, size, device=device), torch.rand(1, 3, size, size, device=device)
with torch.no_grad():
    style_grams = [gram(it) for it in features(style)]
    wanted = features(content)[3]
image = content.clone().requires_grad_(True)
optimizer = torch.optim.LBFGS([image], max_iter=4)


def closure():
    optimizer.zero_grad()
    found = features(image)
    style_loss = sum(F.mse_loss(gram(it), goal) for it, goal in zip(found, style_grams))
    loss = F.mse_loss(found[3], wanted) + 1e5 * style_loss
    loss.backward()
    return loss


for _ in range(steps):
    optimizer.step(closure)
    with torch.no_grad():
        image.clamp_(0, 1)
