"""Steps that solve something inside, and derivatives taken by transformations: written before the phantom had run any of
them, and measured on the H200 once.

L-BFGS as it is used (pictures, physics, calibration, double precision), eigen-decompositions in optimizers, sparse times
sparse, `torch.func`, volumes, and convolutional networks whose algorithms are tried out.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import classify, images, kind, train


# L-BFGS


@kind
def style_transfer_lbfgs():
    """The tutorial: a picture is the parameter, the features of VGG are compared by their Gram matrices."""
    import torchvision

    body = torchvision.models.vgg19().features.cuda().eval().requires_grad_(False)
    layers = {0, 5, 10, 19, 28}

    def features(x):
        found = []
        for i, layer in enumerate(body[:29]):
            x = F.relu(x) if isinstance(layer, nn.ReLU) else layer(x)
            if i in layers:
                found.append(x)
        return found

    def gram(x):
        n, c, h, w = x.shape
        flat = x.view(n * c, h * w)
        return flat @ flat.t() / (n * c * h * w)

    style, content = torch.rand(1, 3, 384, 384).cuda(), torch.rand(1, 3, 384, 384).cuda()
    styles, contents = [gram(it).detach() for it in features(style)], features(content)[3].detach()
    picture = content.clone().requires_grad_(True)
    optimizer = torch.optim.LBFGS([picture])
    runs = [0]
    while runs[0] <= 60:

        def closure():
            with torch.no_grad():
                picture.clamp_(0, 1)
            optimizer.zero_grad()
            found = features(picture)
            style_score = sum(F.mse_loss(gram(it), wanted) for it, wanted in zip(found, styles))
            loss = style_score * 1e6 + F.mse_loss(found[3], contents)
            loss.backward()
            runs[0] += 1
            if runs[0] % 20 == 0:
                print(runs[0], style_score.item(), loss.item())
            return loss

        optimizer.step(closure)


@kind
def physics_informed_lbfgs_float64():
    """Burgers' equation: Adam first, then one long step of L-BFGS in double precision that stops by its own tests."""
    torch.set_default_dtype(torch.float64)
    sizes = [2] + [50] * 6 + [1]
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.Tanh()]
    model = nn.Sequential(*layers[:-1]).cuda()
    inside = (torch.rand(8000, 2) * torch.tensor([2.0, 1.0]) - torch.tensor([1.0, 0.0])).cuda().requires_grad_(True)
    edge = torch.rand(400, 2).cuda()
    known = -torch.sin(math.pi * edge[:, :1])

    def loss_of():
        u = model(inside)
        first = torch.autograd.grad(u.sum(), inside, create_graph=True)[0]
        second = torch.autograd.grad(first[:, 0].sum(), inside, create_graph=True)[0][:, :1]
        residual = first[:, 1:] + u * first[:, :1] - 0.01 / math.pi * second
        return residual.square().mean() + (model(edge) - known).square().mean()

    adam = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(5):
        adam.zero_grad()
        loss_of().backward()
        adam.step()
    lbfgs = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=150, max_eval=200, history_size=50, tolerance_grad=1e-9, tolerance_change=1e-12, line_search_fn="strong_wolfe")

    def closure():
        lbfgs.zero_grad()
        loss = loss_of()
        loss.backward()
        return loss

    lbfgs.step(closure)


@kind
def calibrated_temperature_lbfgs():
    """Temperature scaling: a single number is fitted to the logits of a validation set."""
    logits, labels = torch.randn(50000, 1000).cuda(), torch.randint(0, 1000, (50000,)).cuda()
    temperature = nn.Parameter(torch.ones(1, device="cuda") * 1.5)
    optimizer = torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(logits / temperature, labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        F.softmax(logits / temperature, 1).max(1)


# Other optimizers


@kind
def soap_eigenbases():
    """Adam in the eigenbases of Shampoo's preconditioners, refreshed by QR."""
    model = nn.Sequential(nn.Linear(768, 1536), nn.GELU(), nn.Linear(1536, 768), nn.GELU(), nn.Linear(768, 100)).cuda()
    state = {}
    for x, y in images(512, 768, classes=100, steps=4):
        classify(model, x.cuda(), y.cuda()).backward()
        with torch.no_grad():
            for p in model.parameters():
                g, it = p.grad, state.setdefault(p, {})
                if g.ndim < 2:
                    p.sub_(g, alpha=1e-3)
                    continue
                if not it:
                    it.update(left=torch.zeros(len(g), len(g), device="cuda"), right=torch.zeros(g.shape[1], g.shape[1], device="cuda"), m=torch.zeros_like(g), v=torch.zeros_like(g))
                it["left"].lerp_(g @ g.T, 0.05)
                it["right"].lerp_(g.T @ g, 0.05)
                if "q" not in it:
                    it["q"] = [torch.linalg.eigh(m + 1e-8 * torch.eye(len(m), device="cuda"))[1].flip(1) for m in (it["left"], it["right"])]
                else:
                    it["q"] = [torch.linalg.qr(m @ q)[0] for m, q in zip((it["left"], it["right"]), it["q"])]
                turned = it["q"][0].T @ g @ it["q"][1]
                it["m"].lerp_(g, 0.1)
                it["v"].lerp_(turned.square(), 0.05)
                step = (it["q"][0].T @ it["m"] @ it["q"][1]) / (it["v"].sqrt() + 1e-8)
                p.sub_(it["q"][0] @ step @ it["q"][1].T, alpha=1e-3)
        model.zero_grad()


@kind
def adafactor_and_muon_with_ema():
    """Two optimizers of torch on one transformer, and a moving average of its weights."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, norm_first=True), 6, enable_nested_tensor=False).cuda()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
    matrices = [p for p in model.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim != 2]
    optimizers = [torch.optim.Muon(matrices, lr=0.02), torch.optim.Adafactor(others, lr=1e-3)]
    for x, _ in images(16, 256, 512):
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(x.cuda()).square().mean()
        loss.backward()
        for it in optimizers:
            it.step()
            it.zero_grad()
        average.update_parameters(model)


@kind
def learned_step_size():
    """Prodigy's idea: the distance from the start, by sums over all parameters that are read on the host each step."""
    import torchvision

    model = torchvision.models.mobilenet_v2(num_classes=100).cuda()
    parameters = list(model.parameters())
    start = [p.detach().clone() for p in parameters]
    sums, first, second = ([torch.zeros_like(p) for p in parameters] for _ in range(3))
    d, numerator = 1e-6, 0.0
    for x, y in images(48, 3, 192, 192, classes=100, steps=4):
        classify(model, x.cuda(), y.cuda()).backward()
        with torch.no_grad():
            change = torch.zeros((), device="cuda")
            for p, s, x0, m, v in zip(parameters, sums, start, first, second):
                change += torch.dot(p.grad.flatten(), (x0 - p).flatten()) * d
                m.lerp_(p.grad * d, 0.1)
                v.lerp_((p.grad * d).square(), 0.01)
                s.add_(p.grad, alpha=d * d)
            numerator = 0.99 * numerator + change.item()
            size = sum(s.abs().sum().item() for s in sums)
            if size > 0:
                d = max(d, min(numerator / size, 1.02 * d))
            for p, m, v in zip(parameters, first, second):
                p.addcdiv_(m, v.sqrt() + d * 1e-8, value=-d)
        model.zero_grad()


# Derivatives by transformation


@kind
def hessian_vector_products():
    """Conjugate gradients over Hessian-vector products: forward over reverse, and stops when the residual is small."""
    model = nn.Sequential(nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 10)).cuda()
    weights = dict(model.named_parameters())
    x, y = torch.randn(2048, 256).cuda(), torch.randint(0, 10, (2048,)).cuda()

    def loss_of(weights):
        return F.cross_entropy(torch.func.functional_call(model, weights, (x,)), y)

    for _ in range(3):
        gradient = torch.func.grad(loss_of)(weights)
        solution = {k: torch.zeros_like(v) for k, v in gradient.items()}
        residual = {k: -v for k, v in gradient.items()}
        direction = {k: v.clone() for k, v in residual.items()}
        size = sum(v.square().sum() for v in residual.values())
        for _ in range(8):
            _, curved = torch.func.jvp(torch.func.grad(loss_of), (weights,), (direction,))
            curved = {k: v + 0.1 * direction[k] for k, v in curved.items()}
            step = size / sum((direction[k] * curved[k]).sum() for k in direction)
            solution = {k: v + step * direction[k] for k, v in solution.items()}
            residual = {k: v - step * curved[k] for k, v in residual.items()}
            new = sum(v.square().sum() for v in residual.values())
            if new.sqrt() < 1e-10:
                break
            direction = {k: residual[k] + new / size * direction[k] for k in direction}
            size = new
        weights = {k: (v + solution[k]).detach().requires_grad_(True) for k, v in weights.items()}


@kind
def neural_tangent_kernel():
    """Jacobians of each sample by vmap over jacrev, and their products."""
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16, 10)).cuda()
    weights = {k: v.detach() for k, v in model.named_parameters()}
    x = torch.randn(24, 3, 8, 8).cuda()

    def one(weights, x):
        return torch.func.functional_call(model, weights, (x[None],))[0]

    jacobian = torch.func.vmap(torch.func.jacrev(one), (None, 0))(weights, x)
    kernel = sum(torch.einsum("naf,mbf->nmab", j.flatten(2), j.flatten(2)) for j in jacobian.values())
    torch.linalg.eigvalsh(kernel.permute(0, 2, 1, 3).reshape(240, 240))


# Volumes, sparse things, and algorithms that are tried


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return torch.round(x / scale) * scale

    @staticmethod
    def backward(ctx, gradient):
        x, scale = ctx.saved_tensors
        return gradient * (x.abs() <= 8 * scale), (gradient * (torch.round(x / scale) - x / scale)).sum().view(1)


@kind
def volume_autoencoder_with_warps():
    """3-D convolutions and transposed ones, a warp by grid_sample, a rounding whose gradient is ours, and a penalty on gradients."""
    down = nn.Sequential(nn.Conv3d(1, 16, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv3d(16, 32, 3, 2, 1), nn.LeakyReLU(0.2)).cuda()
    up = nn.Sequential(nn.ConvTranspose3d(32, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.ConvTranspose3d(16, 3, 4, 2, 1)).cuda()
    scale = nn.Parameter(torch.full((1,), 0.1, device="cuda"))
    optimizer = torch.optim.AdamW([*down.parameters(), *up.parameters(), scale], 1e-3)
    corners = torch.eye(3, 4).repeat(2, 1, 1).cuda()
    for x, _ in images(2, 1, 64, 64, 64):
        x = x.cuda().requires_grad_(True)
        flow = up(Rounded.apply(down(x), scale)).permute(0, 2, 3, 4, 1)
        warped = F.grid_sample(x, F.affine_grid(corners, x.shape, align_corners=False) + 0.1 * flow.tanh(), align_corners=False)
        loss = F.mse_loss(warped, x.detach())
        (gradient,) = torch.autograd.grad(flow.square().mean(), x, create_graph=True)
        (loss + gradient.square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()


@kind
def two_hop_graph_network():
    """A graph's square by a product of two sparse matrices in each step, in both layouts."""
    nodes = 6000
    index = torch.randint(0, nodes, (2, 30000))
    graph = torch.sparse_coo_tensor(index, torch.rand(30000), (nodes, nodes)).coalesce().cuda()
    rows = graph.to_sparse_csr()
    model = nn.ModuleList([nn.Linear(128, 128), nn.Linear(128, 16)]).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.randn(nodes, 128).cuda(), torch.randint(0, 16, (nodes,)).cuda()
    for _ in range(3):
        two = torch.sparse.mm(graph, graph)
        hidden = torch.sparse.mm(two, model[0](x)).relu()
        loss = F.cross_entropy(torch.sparse.mm(graph, model[1](hidden)), y)
        with torch.no_grad():
            (rows @ rows) @ x
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def resnet_tried_out(name, size, batch, channels_last=False, autocast=None):
    import torchvision

    torch.backends.cudnn.benchmark = True
    model = getattr(torchvision.models, name)(num_classes=100).cuda()
    model = model.to(memory_format=torch.channels_last) if channels_last else model
    scaler = torch.amp.GradScaler(init_scale=64.0) if autocast == torch.float16 else None
    train(model, images(batch, 3, size, size, classes=100), classify, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), autocast=autocast, scaler=scaler)


@kind
def resnet18_tried_out():
    resnet_tried_out("resnet18", 128, 64)


@kind
def resnet50_tried_out_amp():
    resnet_tried_out("resnet50", 192, 32, True, torch.float16)


@kind
def regnet_tried_out_bf16():
    resnet_tried_out("regnet_y_1_6gf", 160, 48, False, torch.bfloat16)


@kind
def nested_lengths_in_double_backward():
    """Jagged batches through attention, and a penalty on the gradient of the inputs of a second head."""
    attention = nn.MultiheadAttention(256, 8, batch_first=True).cuda()
    head = nn.Sequential(nn.Linear(256, 256), nn.Softplus(), nn.Linear(256, 1)).cuda()
    optimizer = torch.optim.RAdam([*attention.parameters(), *head.parameters()])
    for _ in range(3):
        pieces = [torch.randn(n, 256, device="cuda") for n in (31, 120, 77, 5, 200, 64)]
        jagged = torch.nested.nested_tensor(pieces, layout=torch.jagged, requires_grad=True)
        padded = torch.nested.to_padded_tensor(jagged, 0.0)
        mixed, _ = attention(padded, padded, padded, need_weights=False)
        leaf = mixed.detach().requires_grad_(True)
        score = head(leaf)
        (gradient,) = torch.autograd.grad(score.sum(), leaf, create_graph=True)
        (mixed.square().mean() + gradient.norm(2, -1).sub(1).square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
