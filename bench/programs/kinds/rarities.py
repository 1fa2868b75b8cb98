"""Structures that the other modules lack: written before the phantom had run any of them, and measured on the H200 once.

Optimizers that step inside themselves, derivatives of derivatives, networks that are solved instead of run, quantization,
jagged batches, data from workers, and losses whose matrices are larger than the model.
"""
import copy
import math
import os
import random
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import classify, images, kind, language, llama, tokens, train


# Optimizers and how their steps are taken


@kind
def lbfgs_closure():
    """A full-batch second-order optimizer, whose history is as large as the model many times over."""
    model = nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 1)).cuda()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=8, history_size=12, line_search_fn="strong_wolfe")
    x, y = torch.randn(4096, 256).cuda(), torch.randn(4096, 1).cuda()

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(4):
        optimizer.step(closure)


@kind
def sharpness_aware_two_steps():
    """SAM: climb to the worst neighbour, come back, step; batch norm does not learn in the second pass."""
    import torchvision

    model = torchvision.models.wide_resnet50_2(num_classes=100).cuda()
    base = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    for x, y in images(24, 3, 128, 128, classes=100):
        x, y = x.cuda(), y.cuda()
        F.cross_entropy(model(x), y, label_smoothing=0.1).backward()
        with torch.no_grad():
            norm = torch.norm(torch.stack([p.grad.norm() for p in model.parameters()]))
            old = {p: p.clone() for p in model.parameters()}
            for p in model.parameters():
                p.add_(p.grad * (0.05 / (norm + 1e-12)))
        base.zero_grad()
        for m in model.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.backup, m.momentum = m.momentum, 0
        F.cross_entropy(model(x), y, label_smoothing=0.1).backward()
        for m in model.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.momentum = m.backup
        with torch.no_grad():
            for p, before in old.items():
                p.data = before
        base.step()
        base.zero_grad()


@kind
def galore_projected_adam():
    """Gradients projected onto their leading singular vectors before Adam sees them."""
    model = llama(hidden_size=512, intermediate_size=1408, num_hidden_layers=4, num_attention_heads=8).cuda()
    state = {}
    for (ids,) in tokens(4, 256, 32000):
        language(model, ids.cuda()).backward()
        with torch.no_grad():
            for p in model.parameters():
                g = p.grad
                it = state.setdefault(p, {"step": 0})
                small = p.ndim < 2 or min(p.shape) < 64 or p.shape[0] > 16000
                if not small:
                    if it["step"] % 2 == 0:
                        u, _, _ = torch.linalg.svd(g.float(), full_matrices=False)
                        it["q"] = u[:, :64].contiguous()
                    g = it["q"].T @ g
                if "m" not in it:
                    it["m"], it["v"] = torch.zeros_like(g), torch.zeros_like(g)
                it["step"] += 1
                it["m"].lerp_(g, 0.1)
                it["v"].mul_(0.999).addcmul_(g, g, value=0.001)
                move = it["m"] / (it["v"].sqrt() + 1e-8)
                p.add_(move if small else it["q"] @ move, alpha=-1e-3)
                p.grad = None


@kind
def shampoo_preconditioned():
    """Roots of Kronecker factors by eigendecomposition, for each matrix of a small network."""
    model = nn.Sequential(nn.Linear(512, 768), nn.ReLU(), nn.Linear(768, 384), nn.ReLU(), nn.Linear(384, 10)).cuda()
    factors = {p: [torch.eye(n, device="cuda") * 1e-4 for n in p.shape] for p in model.parameters() if p.ndim == 2}
    for x, y in images(256, 512):
        classify(model, x.cuda(), y.cuda()).backward()
        with torch.no_grad():
            for p in model.parameters():
                g = p.grad
                if p in factors:
                    left, right = factors[p]
                    left.add_(g @ g.T)
                    right.add_(g.T @ g)
                    roots = []
                    for it in (left, right):
                        values, vectors = torch.linalg.eigh(it)
                        roots.append(vectors @ torch.diag(values.clamp(min=1e-6).pow(-0.25)) @ vectors.T)
                    g = roots[0] @ g @ roots[1]
                p.add_(g, alpha=-0.01)
        model.zero_grad()


@kind
def sparse_embedding_adam():
    """Sparse gradients of embeddings with SparseAdam beside a dense optimizer: word2vec with negative samples."""
    centre, context = (nn.Embedding(200_000, 128, sparse=True).cuda() for _ in range(2))
    head = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)).cuda()
    sparse = torch.optim.SparseAdam([*centre.parameters(), *context.parameters()], lr=1e-3)
    dense = torch.optim.Adagrad(head.parameters())
    for _ in range(4):
        words, near = torch.randint(0, 200_000, (4096,)).cuda(), torch.randint(0, 200_000, (4096, 6)).cuda()
        score = head(centre(words)[:, None] * context(near)).squeeze(-1)
        label = torch.zeros_like(score)
        label[:, 0] = 1
        F.binary_cross_entropy_with_logits(score, label).backward()
        sparse.step()
        dense.step()
        sparse.zero_grad()
        dense.zero_grad()


@kind
def averaged_weights_and_norms():
    """Stochastic weight averaging with its pass over the data for batch norms, a validation loop, and checkpoints saved and read."""
    import torchvision

    model = torchvision.models.resnet34(num_classes=50).cuda()
    mean = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    schedule = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.01)
    batches = list(images(48, 3, 112, 112, classes=50, steps=3))
    path = os.path.join(tempfile.mkdtemp(), "last.pt")
    for epoch in range(2):
        train(model, batches, classify, optimizer)
        mean.update_parameters(model)
        schedule.step()
        mean.eval()
        with torch.no_grad():
            right = sum((mean(x.cuda()).argmax(1) == y.cuda()).sum().item() for x, y in batches)
        torch.save({"model": model.state_dict(), "mean": mean.state_dict(), "optimizer": optimizer.state_dict(), "right": right}, path)
        state = torch.load(path, map_location="cuda")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    torch.optim.swa_utils.update_bn(batches, mean, device="cuda")


@kind
def lion_with_decayed_groups_and_accumulated_amp():
    """Mixed precision in fp16 with accumulation, clipping, a warm-up and parameter groups; the last window is incomplete."""
    import transformers

    model = transformers.BertForMaskedLM(transformers.BertConfig(num_hidden_layers=6, vocab_size=12000)).cuda()
    plain = [p for n, p in model.named_parameters() if "bias" in n or "LayerNorm" in n]
    chosen = {id(p) for p in plain}
    optimizer = torch.optim.RAdam([{"params": [p for p in model.parameters() if id(p) not in chosen], "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=1e-4)
    scaler = torch.amp.GradScaler(init_scale=256.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
    for number, (ids,) in enumerate(tokens(8, 160, 12000, steps=7)):
        ids = ids.cuda()
        labels = torch.where(torch.rand(ids.shape, device="cuda") < 0.15, ids, -100)
        with torch.autocast("cuda", torch.float16):
            loss = model(input_ids=ids, labels=labels).loss / 3
        scaler.scale(loss).backward()
        if number % 3 == 2:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)


# Derivatives of derivatives


@kind
def maml_inner_steps():
    """Meta-learning through three inner steps, with the graph kept: `torch.func.functional_call` and `autograd.grad`."""
    conv = lambda i: nn.Sequential(nn.Conv2d(i, 64, 3, padding=1), nn.BatchNorm2d(64, track_running_stats=False), nn.ReLU(), nn.MaxPool2d(2))
    model = nn.Sequential(conv(3), conv(64), conv(64), conv(64), nn.Flatten(), nn.Linear(64 * 25, 5)).cuda()
    outer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(3):
        outer.zero_grad()
        for _ in range(4):
            support, query = torch.randn(25, 3, 84, 84).cuda(), torch.randn(75, 3, 84, 84).cuda()
            seen, asked = torch.arange(5).repeat_interleave(5).cuda(), torch.arange(5).repeat_interleave(15).cuda()
            fast = dict(model.named_parameters())
            for _ in range(3):
                loss = F.cross_entropy(torch.func.functional_call(model, fast, support), seen)
                grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
                fast = {name: p - 0.01 * g for (name, p), g in zip(fast.items(), grads)}
            (F.cross_entropy(torch.func.functional_call(model, fast, query), asked) / 4).backward()
        outer.step()


@kind
def style_regularized_path_length():
    """Modulated convolutions as groups, a lazy gradient penalty and path lengths: derivatives of grouped convolutions' derivatives."""

    class Modulated(nn.Module):
        def __init__(self, i, o, up):
            super().__init__()
            self.weight, self.style, self.up = nn.Parameter(torch.randn(o, i, 3, 3) * 0.05), nn.Linear(256, i), up

        def forward(self, x, w):
            b, c, h, _ = x.shape
            weight = self.weight[None] * (self.style(w)[:, None, :, None, None] + 1)
            weight = weight * torch.rsqrt(weight.pow(2).sum([2, 3, 4], keepdim=True) + 1e-8)
            if self.up:
                x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = F.conv2d(x.reshape(1, b * c, *x.shape[2:]), weight.flatten(0, 1), padding=1, groups=b)
            return F.leaky_relu(x.view(b, -1, *x.shape[2:]) + torch.randn(b, 1, *x.shape[2:], device=x.device) * 0.1, 0.2)

    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.start = nn.Parameter(torch.randn(1, 256, 4, 4))
            self.map = nn.Sequential(nn.Linear(128, 256), nn.LeakyReLU(0.2), nn.Linear(256, 256))
            sizes = [256, 256, 128, 128, 64, 64]
            self.layers = nn.ModuleList(Modulated(i, o, k % 2 == 0) for k, (i, o) in enumerate(zip(sizes, sizes[1:])))
            self.image = nn.Conv2d(64, 3, 1)

        def forward(self, z):
            w = self.map(z)
            x = self.start.expand(len(z), -1, -1, -1)
            for layer in self.layers:
                x = layer(x, w)
            return self.image(x), w

    down = lambda i, o: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Conv2d(i, o, 4, 2, 1)), nn.LeakyReLU(0.2))
    g, d = Generator().cuda(), nn.Sequential(down(3, 64), down(64, 128), down(128, 256), nn.Flatten(), nn.Linear(256 * 16, 1)).cuda()
    og, od = (torch.optim.Adam(it.parameters(), 2e-3, betas=(0.0, 0.99)) for it in (g, d))
    for step in range(4):
        z, real = torch.randn(8, 128).cuda(), torch.randn(8, 3, 32, 32).cuda().requires_grad_(step % 2 == 0)
        fake, _ = g(z)
        loss = F.softplus(d(fake.detach())).mean() + F.softplus(-d(real)).mean()
        if step % 2 == 0:
            (slope,) = torch.autograd.grad(d(real).sum(), real, create_graph=True)
            loss = loss + 5 * slope.pow(2).sum([1, 2, 3]).mean()
        od.zero_grad()
        loss.backward()
        od.step()
        fake, w = g(torch.randn(8, 128).cuda())
        loss = F.softplus(-d(fake)).mean()
        if step % 2 == 1:
            (slope,) = torch.autograd.grad((fake * torch.randn_like(fake) / 32).sum(), w, create_graph=True)
            loss = loss + 2 * (slope.pow(2).sum(1).sqrt() - 1).pow(2).mean()
        og.zero_grad()
        loss.backward()
        og.step()


@kind
def neural_ode_adjoint():
    """A continuous network: Runge-Kutta forward without a graph, and its adjoint solved backwards."""

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(65, 512), nn.Softplus(), nn.Linear(512, 64))

        def forward(self, t, y):
            return self.net(torch.cat([y, t.expand(len(y), 1)], 1))

    def step(f, t, h, y):
        a = f(t, y)
        b = f(t + h / 2, y + h / 2 * a)
        c = f(t + h / 2, y + h / 2 * b)
        return y + h / 6 * (a + 2 * b + 2 * c + f(t + h, y + h * c))

    class Solve(torch.autograd.Function):
        @staticmethod
        def forward(ctx, field, y, *parameters):
            ctx.field, h = field, 1 / 16
            for k in range(16):
                y = step(field, torch.full((1,), k * h, device="cuda"), h, y)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            (y,), field, h = ctx.saved_tensors, ctx.field, -1 / 16
            parameters = tuple(field.parameters())
            total = [torch.zeros_like(p) for p in parameters]
            for k in range(16, 0, -1):
                t = torch.full((1,), k / 16, device="cuda")
                with torch.enable_grad():
                    at = y.detach().requires_grad_()
                    found = torch.autograd.grad(field(t, at), (at, *parameters), grad)
                with torch.no_grad():
                    y = step(field, t, h, y)
                grad = grad - h * found[0]
                total = [a - h * b for a, b in zip(total, found[1:])]
            return None, grad, *total

    field, head = Field().cuda(), nn.Linear(64, 10).cuda()
    optimizer = torch.optim.Adam([*field.parameters(), *head.parameters()])
    for x, y in images(2048, 64, steps=3):
        optimizer.zero_grad()
        F.cross_entropy(head(Solve.apply(field, x.cuda(), *field.parameters())), y.cuda()).backward()
        optimizer.step()


@kind
def normalizing_flow_glow():
    """Invertible 1x1 convolutions with log determinants, affine couplings and actnorm: images as likelihoods."""

    class Step(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.scale, self.shift = nn.Parameter(torch.zeros(1, c, 1, 1)), nn.Parameter(torch.zeros(1, c, 1, 1))
            self.mix = nn.Parameter(torch.linalg.qr(torch.randn(c, c))[0])
            self.net = nn.Sequential(nn.Conv2d(c // 2, 256, 3, padding=1), nn.ReLU(), nn.Conv2d(256, 256, 1), nn.ReLU(), nn.Conv2d(256, c, 3, padding=1))

        def forward(self, x):
            area = x.shape[2] * x.shape[3]
            x = (x + self.shift) * self.scale.exp()
            gain = area * (self.scale.sum() + torch.linalg.slogdet(self.mix)[1])
            x = F.conv2d(x, self.mix[..., None, None])
            a, b = x.chunk(2, 1)
            s, t = self.net(a).chunk(2, 1)
            s = torch.sigmoid(s + 2)
            return torch.cat([a, (b + t) * s], 1), gain + s.log().sum([1, 2, 3])

    levels = nn.ModuleList(nn.ModuleList(Step(c) for _ in range(6)) for c in (12, 24, 48)).cuda()
    optimizer = torch.optim.Adamax(levels.parameters(), 1e-3)
    for x, _ in images(24, 3, 32, 32):
        x, total, out = x.cuda(), 0, []
        for level in levels:
            x = F.pixel_unshuffle(x, 2)
            for step in level:
                x, gain = step(x)
                total = total + gain
            x, done = x.chunk(2, 1)
            out.append(done.flatten(1))
        z = torch.cat([*out, x.flatten(1)], 1)
        loss = -(torch.distributions.Normal(0, 1).log_prob(z).sum(1) + total).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(levels.parameters(), 5.0)
        optimizer.step()
        loss.item()


# Shapes of their own


@kind
def jagged_batches_attention():
    """Nested tensors in the jagged layout through linear layers, norms and attention, in bf16."""

    class Block(nn.Module):
        def __init__(self, width=512, heads=8):
            super().__init__()
            self.norm, self.qkv, self.out, self.heads = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width), heads
            self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2048), nn.GELU(), nn.Linear(2048, width))

        def forward(self, x):
            q, k, v = (it.unflatten(-1, [self.heads, -1]).transpose(1, 2) for it in self.qkv(self.norm(x)).chunk(3, -1))
            x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))
            return x + self.mlp(x)

    model = nn.Sequential(*(Block() for _ in range(4))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    rng = random.Random(0)
    for _ in range(3):
        rows = [torch.randn(rng.randint(40, 500), 512).cuda() for _ in range(16)]
        batch = torch.nested.nested_tensor(rows, layout=torch.jagged)
        with torch.autocast("cuda", torch.bfloat16):
            out = model(batch)
        loss = out.values().float().pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def volume_segmentation_unet():
    """A 3-D U-Net with instance norms, transposed convolutions, deep supervision and Dice, in bf16 from pinned workers."""

    def block(i, o):
        return nn.Sequential(*(it for a in (i, o) for it in (nn.Conv3d(a, o, 3, padding=1, bias=False), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(inplace=True))))

    class Net(nn.Module):
        def __init__(self, sizes=(24, 48, 96, 192)):
            super().__init__()
            self.down = nn.ModuleList(block(i, o) for i, o in zip((4, *sizes), sizes))
            self.up = nn.ModuleList(nn.ConvTranspose3d(i, o, 2, 2) for i, o in zip(sizes[:0:-1], sizes[-2::-1]))
            self.join = nn.ModuleList(block(2 * o, o) for o in sizes[-2::-1])
            self.heads = nn.ModuleList(nn.Conv3d(o, 3, 1) for o in sizes[-2::-1])

        def forward(self, x):
            kept = []
            for k, part in enumerate(self.down):
                x = part(F.max_pool3d(x, 2) if k else x)
                kept.append(x)
            outs = []
            for up, join, head, skip in zip(self.up, self.join, self.heads, kept[-2::-1]):
                x = join(torch.cat([up(x), skip], 1))
                outs.append(head(x))
            return outs

    class Scans(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, number):
            generator = torch.Generator().manual_seed(number)
            return torch.randn(4, 64, 96, 96, generator=generator), (torch.randn(3, 64, 96, 96, generator=generator) > 1).float()

    def dice(out, y):
        p = out.sigmoid()
        return 1 - (2 * (p * y).sum([2, 3, 4]) + 1) / (p.sum([2, 3, 4]) + y.sum([2, 3, 4]) + 1)

    def loss_of(m, x, y):
        total = 0
        for out in m(x):
            small = F.interpolate(y, out.shape[2:], mode="nearest")
            total = total + dice(out.float(), small).mean() + F.binary_cross_entropy_with_logits(out.float(), small)
        return total

    model = Net().cuda()
    loader = torch.utils.data.DataLoader(Scans(), batch_size=2, num_workers=2, pin_memory=True, persistent_workers=True)
    train(model, loader, loss_of, torch.optim.SGD(model.parameters(), 1e-2, momentum=0.99, nesterov=True), autocast=torch.bfloat16, clip=12)


@kind
def convolutional_lstm_frames():
    """A recurrent network of convolutions unrolled over video, with teacher forcing that fades."""

    class Cell(nn.Module):
        def __init__(self, i, c):
            super().__init__()
            self.gates, self.c = nn.Conv2d(i + c, 4 * c, 5, padding=2), c

        def forward(self, x, state):
            h, c = state or (x.new_zeros(len(x), self.c, *x.shape[2:]),) * 2
            i, f, o, g = self.gates(torch.cat([x, h], 1)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            return o.sigmoid() * c.tanh(), c

    cells, head = nn.ModuleList([Cell(1, 48), Cell(48, 48)]).cuda(), nn.Conv2d(48, 1, 1).cuda()
    optimizer = torch.optim.Adam([*cells.parameters(), *head.parameters()])
    rng = random.Random(1)
    for _ in range(3):
        film = torch.rand(6, 12, 1, 64, 64).cuda()
        states, frame, loss = [None, None], film[:, 0], 0
        for t in range(1, 12):
            x = frame
            for k, cell in enumerate(cells):
                states[k] = cell(x, states[k])
                x = states[k][0]
            out = head(x).sigmoid()
            loss = loss + F.binary_cross_entropy(out, film[:, t])
            frame = film[:, t] if rng.random() < 0.6 else out
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def spatial_transformer_and_deformable():
    """Affine grids, grid sampling, and torchvision's deformable convolution."""
    import torchvision

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.where = nn.Sequential(nn.Conv2d(3, 16, 7, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(1024, 6))
            self.first = nn.Conv2d(3, 64, 3, padding=1)
            self.offset, self.mask = nn.Conv2d(64, 18, 3, padding=1), nn.Conv2d(64, 9, 3, padding=1)
            self.deform = torchvision.ops.DeformConv2d(64, 128, 3, padding=1)
            self.head = nn.Linear(128, 10)

        def forward(self, x):
            grid = F.affine_grid(self.where(x).view(-1, 2, 3), x.shape, align_corners=False)
            x = F.relu(self.first(F.grid_sample(x, grid, align_corners=False)))
            x = self.deform(x, self.offset(x), self.mask(x).sigmoid())
            return self.head(torchvision.ops.sigmoid_focal_loss(x, torch.zeros_like(x)).mean([2, 3]))

    model = Net().cuda()
    train(model, images(32, 3, 96, 96), classify, torch.optim.NAdam(model.parameters()))


@kind
def state_space_fft_long_convolution():
    """S4D: complex diagonal states, kernels by a Vandermonde product, convolutions by FFT; half of the layers are Hyena-like gates."""

    class Layer(nn.Module):
        def __init__(self, width=256, states=32):
            super().__init__()
            self.step = nn.Parameter(torch.rand(width) * 4 - 7)
            self.real, self.imag = nn.Parameter(torch.full((width, states), 0.5).log()), nn.Parameter(math.pi * torch.arange(states).repeat(width, 1).float())
            self.c = nn.Parameter(torch.randn(width, states, 2) * 0.5**0.5)
            self.out, self.norm = nn.Conv1d(width, 2 * width, 1), nn.LayerNorm(width)

        def forward(self, x):
            length = x.shape[-1]
            a = -self.real.exp() + 1j * self.imag
            dt = self.step.exp()[:, None] * a
            k = dt[..., None] * torch.arange(length, device=x.device)
            c = torch.view_as_complex(self.c) * (dt.exp() - 1) / a
            kernel = 2 * torch.einsum("hn,hnl->hl", c, k.exp()).real
            y = torch.fft.irfft(torch.fft.rfft(kernel, n=2 * length) * torch.fft.rfft(x, n=2 * length), n=2 * length)[..., :length]
            return self.norm((x + F.glu(self.out(F.gelu(y)), 1)).transpose(1, 2)).transpose(1, 2)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.layers, self.head = nn.Linear(1, 256), nn.Sequential(*(Layer() for _ in range(4))), nn.Linear(256, 10)

        def forward(self, x):
            return self.head(self.layers(self.enter(x).transpose(1, 2)).mean(-1))

    model = Model().cuda()
    train(model, images(8, 1024, 1), classify, torch.optim.AdamW(model.parameters()))


@kind
def hierarchical_capsules_routing():
    """Capsules with three rounds of routing by agreement."""

    def squash(x):
        n = x.pow(2).sum(-1, keepdim=True)
        return n / (1 + n) * x / (n.sqrt() + 1e-8)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.first = nn.Conv2d(1, 256, 9), nn.Conv2d(256, 256, 9, 2)
            self.weight = nn.Parameter(torch.randn(1, 1152, 10, 16, 8) * 0.01)
            self.decode = nn.Sequential(nn.Linear(160, 512), nn.ReLU(), nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 784), nn.Sigmoid())

        def forward(self, x, y):
            u = squash(self.first(F.relu(self.conv(x))).view(len(x), 1152, 8))
            seen = (self.weight @ u[:, :, None, :, None]).squeeze(-1)
            still, b = seen.detach(), torch.zeros(len(x), 1152, 10, 1, device=x.device)
            for k in range(3):
                c = b.softmax(2)
                v = squash((c * (seen if k == 2 else still)).sum(1))
                b = b + (still * v[:, None]).sum(-1, keepdim=True)
            length = v.norm(dim=-1)
            hot = F.one_hot(y, 10).float()
            margin = hot * F.relu(0.9 - length) ** 2 + 0.5 * (1 - hot) * F.relu(length - 0.1) ** 2
            return margin.sum(1).mean() + 0.0005 * F.mse_loss(self.decode((v * hot[..., None]).flatten(1)), x.flatten(1), reduction="sum")

    model = Net().cuda()
    train(model, images(48, 1, 28, 28), lambda m, x, y: m(x, y), torch.optim.Adam(model.parameters()))


# Teachers, pairs and groups


@kind
def distilled_student_fp16():
    """A frozen teacher in half precision, a student in autocast, features matched by hooks, soft targets."""
    import torchvision

    teacher = torchvision.models.regnet_y_3_2gf(num_classes=100).cuda().half().eval().requires_grad_(False)
    student = torchvision.models.mobilenet_v2(num_classes=100).cuda()
    bridge = nn.Conv2d(1280, 1512, 1).cuda()
    seen = {}
    teacher.trunk_output.register_forward_hook(lambda m, i, o: seen.update(teacher=o))
    student.features.register_forward_hook(lambda m, i, o: seen.update(student=o))
    optimizer = torch.optim.AdamW([*student.parameters(), *bridge.parameters()])
    for x, y in images(32, 3, 160, 160, classes=100):
        x, y = x.cuda(), y.cuda()
        with torch.inference_mode():
            soft = teacher(x.half()).float()
        with torch.autocast("cuda", torch.float16):
            out = student(x)
            close = F.mse_loss(bridge(seen["student"]), seen["teacher"].clone().float())
            loss = F.cross_entropy(out, y) + 4 * F.kl_div((out / 2).log_softmax(1), (soft.clone() / 2).softmax(1), reduction="batchmean") + close
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def momentum_contrast_queue():
    """A momentum encoder, a queue of 65,536 negatives written in place by position, and shuffled batches."""
    import torchvision

    query = torchvision.models.resnet18(num_classes=128).cuda()
    key = copy.deepcopy(query).requires_grad_(False)
    queue, place = F.normalize(torch.randn(128, 65536, device="cuda"), dim=0), 0
    optimizer = torch.optim.SGD(query.parameters(), 0.03, momentum=0.9)
    for x, _ in images(64, 3, 112, 112, steps=4):
        one, two = x.cuda(), x.flip(-1).cuda()
        q = F.normalize(query(one), dim=1)
        with torch.no_grad():
            for a, b in zip(query.parameters(), key.parameters()):
                b.mul_(0.999).add_(a, alpha=0.001)
            order = torch.randperm(len(two), device="cuda")
            k = F.normalize(key(two[order]), dim=1)[order.argsort()]
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.clone().detach()], 1) / 0.07
        loss = F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long, device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        queue[:, place : place + len(k)] = k.T
        place = (place + len(k)) % 65536


@kind
def group_relative_policy_sampling():
    """Answers are sampled with a growing cache, rewarded on the CPU, and the policy is pushed towards the better of each group."""
    model = llama(hidden_size=512, intermediate_size=1408, num_hidden_layers=6, num_attention_heads=8, vocab_size=8000).to("cuda", torch.bfloat16)
    reference = copy.deepcopy(model).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-6)

    def each(m, ids):
        return torch.gather(m(ids[:, :-1]).logits.float().log_softmax(-1), 2, ids[:, 1:, None]).squeeze(-1)

    for _ in range(2):
        prompt = torch.randint(0, 8000, (4, 32)).repeat_interleave(4, 0).cuda()
        with torch.no_grad():
            ids, past, x = prompt, None, prompt
            for _ in range(48):
                out = model(x, past_key_values=past, use_cache=True)
                past = out.past_key_values
                x = torch.multinomial((out.logits[:, -1].float() / 0.8).softmax(-1), 1)
                ids = torch.cat([ids, x], 1)
            old, kept = each(model, ids), each(reference, ids)
        reward = torch.rand(4, 4)
        gain = ((reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4)).flatten().cuda()
        for part in torch.arange(16).split(8):
            now = each(model, ids[part])
            ratio = (now - old[part]).exp()
            far = (kept[part] - now).exp() - (kept[part] - now) - 1
            loss = -(torch.min(ratio * gain[part, None], ratio.clamp(0.8, 1.2) * gain[part, None]) - 0.04 * far)[:, 31:].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@kind
def transport_and_clusters():
    """Sinkhorn's iterations until they no longer move, k-means likewise, then a swapped prediction loss."""
    net, prototypes = nn.Sequential(nn.Linear(512, 2048), nn.BatchNorm1d(2048), nn.ReLU(), nn.Linear(2048, 128)).cuda(), nn.Linear(128, 3000, bias=False).cuda()
    optimizer = torch.optim.SGD([*net.parameters(), *prototypes.parameters()], 0.1, momentum=0.9)
    for x, _ in images(2048, 512):
        a, b = (prototypes(F.normalize(net(x.cuda() + 0.1 * torch.randn_like(x).cuda()))) for _ in range(2))
        with torch.no_grad():
            plan = (b / 0.05).exp().T
            plan /= plan.sum()
            for _ in range(50):
                before = plan.clone()
                plan /= plan.sum(1, keepdim=True) * plan.shape[0]
                plan /= plan.sum(0, keepdim=True) * plan.shape[1]
                if (plan - before).abs().max() < 1e-6:
                    break
            plan = (plan * plan.shape[1]).T
        loss = -(plan * (a / 0.1).log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        points = net(torch.randn(20000, 512).cuda())
        centres = points[torch.randperm(20000, device="cuda")[:64]]
        for _ in range(20):
            chosen = torch.cdist(points, centres).argmin(1)
            moved = torch.stack([points[chosen == k].mean(0) for k in range(64)])
            if torch.allclose(moved, centres, atol=1e-4):
                break
            centres = moved


# The machine's own tricks


@kind
def quantization_aware_resnet():
    """Fake quantization of weights and activations with observers (`torch.ao.quantization`), trained."""
    import torchvision

    model = torchvision.models.quantization.resnet18(quantize=False, num_classes=20)
    model.train()
    model.fuse_model(is_qat=True)
    model.qconfig = torch.ao.quantization.get_default_qat_qconfig("fbgemm")
    torch.ao.quantization.prepare_qat(model, inplace=True)
    model.cuda()
    train(model, images(32, 3, 128, 128, classes=20), classify, torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9))


@kind
def scripted_training():
    """`torch.jit.script`: the profiling executor fuses after the second call."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList(nn.Conv2d(i, o, 3, padding=1) for i, o in ((3, 64), (64, 64), (64, 128)))
            self.head = nn.Linear(128, 10)

        def forward(self, x):
            for conv in self.convs:
                x = conv(x)
                x = x * torch.sigmoid(1.702 * x) + 0.1 * torch.tanh(x)
                x = F.max_pool2d(x, 2)
            return self.head(x.mean([2, 3]))

    model = torch.jit.script(Net().cuda())
    train(model, images(64, 3, 64, 64, steps=5), classify, torch.optim.Adam(model.parameters()))


@kind
def prefetched_on_a_stream():
    """The next batch is copied on a stream of its own while this one is trained; graphed callables for the blocks."""
    side = torch.cuda.Stream()
    block = lambda: nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024))
    model = nn.Sequential(*(block() for _ in range(4)), nn.Linear(1024, 10)).cuda()
    sample = torch.randn(512, 1024, device="cuda", requires_grad=True)
    for k in range(2):
        model[k] = torch.cuda.make_graphed_callables(model[k], (sample,))
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True, foreach=True)
    source = iter(list(images(512, 1024, steps=6)))

    def fetch():
        batch = next(source, None)
        if batch is None:
            return None
        with torch.cuda.stream(side):
            return [it.pin_memory().cuda(non_blocking=True) for it in batch]

    batch = fetch()
    while batch is not None:
        torch.cuda.current_stream().wait_stream(side)
        for it in batch:
            it.record_stream(torch.cuda.current_stream())
        x, y = batch
        batch = fetch()
        optimizer.zero_grad()
        classify(model, x, y).backward()
        optimizer.step()
    torch.cuda.synchronize()


@kind
def selective_checkpoint_and_offload():
    """Matrix products are kept and the rest is computed again; two blocks keep their activations in pinned memory."""
    from torch.utils import checkpoint

    class Block(nn.Module):
        def __init__(self, width=768):
            super().__init__()
            self.attend = nn.TransformerEncoderLayer(width, 12, 3072, 0.1, "gelu", batch_first=True, norm_first=True)

        def forward(self, x):
            return self.attend(x, is_causal=True, src_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1], x.device, x.dtype))

    kept = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]
    contexts = lambda: checkpoint.create_selective_checkpoint_contexts(kept)
    blocks, words, head = nn.ModuleList(Block() for _ in range(8)).cuda(), nn.Embedding(16000, 768).cuda(), nn.Linear(768, 16000).cuda()
    everything = nn.ModuleList([blocks, words, head])

    def loss_of(m, ids):
        x = words(ids)
        for number, block in enumerate(blocks):
            if number < 4:
                x = checkpoint.checkpoint(block, x, use_reentrant=False, context_fn=contexts)
            elif number < 6:
                x = checkpoint.checkpoint(block, x, use_reentrant=True)
            else:
                with torch.autograd.graph.save_on_cpu(pin_memory=True):
                    x = block(x)
        total = 0
        for part, want in zip(x.flatten(0, 1).chunk(4), ids.flatten().chunk(4)):
            total = total + checkpoint.checkpoint(lambda a, b: F.cross_entropy(head(a), b, reduction="sum"), part, want, use_reentrant=False)
        return total / ids.numel()

    train(everything, tokens(6, 384, 16000), loss_of, torch.optim.AdamW(everything.parameters(), fused=True), autocast=torch.bfloat16, clip=1.0)


@kind
def compiled_with_dynamic_lengths():
    """`torch.compile(dynamic=True)` over batches of many lengths, with breaks in the graph and a compiled optimizer."""
    embed = nn.Embedding(8000, 384).cuda()
    layers = nn.ModuleList(nn.TransformerEncoderLayer(384, 6, 1536, 0.0, batch_first=True) for _ in range(3)).cuda()
    head = nn.Linear(384, 8000).cuda()
    model = nn.ModuleList([embed, layers, head])

    def forward(ids):
        x = embed(ids)
        for layer in layers:
            x = layer(x)
            torch._dynamo.graph_break()
        return head(x)

    run = torch.compile(forward, dynamic=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-4))
    step = torch.compile(optimizer.step)
    for length in (96, 130, 77, 210):
        ids = torch.randint(0, 8000, (8, length)).cuda()
        optimizer.zero_grad()
        F.cross_entropy(run(ids).flatten(0, 1), ids.flatten()).backward()
        step()
