"""Fields of work, a script each: reinforcement learning, graphs, text lines, translation, images, detection, series."""

import contextlib
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import kind

DEVICE = "cuda"


@kind
def ppo_mlp():
    """Actor and critic, categorical actions, generalised advantages, clipped objective, four epochs of minibatches."""

    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            make = lambda out: nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, out))
            self.actor, self.critic = make(12), make(1)

        def forward(self, x, action=None):
            dist = torch.distributions.Categorical(logits=self.actor(x))
            action = dist.sample() if action is None else action
            return action, dist.log_prob(action), dist.entropy(), self.critic(x).squeeze(-1)

    agent = Agent().to(DEVICE)
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    length, envs = 64, 128
    for _ in range(3):
        store = {k: torch.zeros(length, envs, device=DEVICE) for k in ("logp", "value", "reward")}
        states = torch.zeros(length, envs, 64, device=DEVICE)
        actions = torch.zeros(length, envs, dtype=torch.long, device=DEVICE)
        for t in range(length):
            states[t] = torch.randn(envs, 64).to(DEVICE)
            with torch.no_grad():
                actions[t], store["logp"][t], _, store["value"][t] = agent(states[t])
            store["reward"][t] = torch.randn(envs).to(DEVICE)
        advantages, last = torch.zeros(length, envs, device=DEVICE), 0
        for t in reversed(range(length - 1)):
            delta = store["reward"][t] + 0.99 * store["value"][t + 1] - store["value"][t]
            advantages[t] = last = delta + 0.99 * 0.95 * last
        flat = lambda x: x.reshape(length * envs, *x.shape[2:])
        batch = [flat(it) for it in (states, actions, store["logp"], advantages, advantages + store["value"])]
        for _ in range(4):
            for index in torch.randperm(length * envs, device=DEVICE).split(2048):
                x, action, old, advantage, goal = (it[index] for it in batch)
                _, logp, entropy, value = agent(x, action)
                ratio = (logp - old).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                loss = torch.max(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)).mean() + 0.5 * F.mse_loss(value, goal) - 0.01 * entropy.mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()


@kind
def gnn_scatter():
    """Message passing with index_add and attention by scatter_reduce; a graph of the size of Cora, ten times."""
    nodes, edges = 27080, 105560

    class Layer(nn.Module):
        def __init__(self, inputs, outputs, heads=4):
            super().__init__()
            self.lin, self.heads = nn.Linear(inputs, outputs * heads, bias=False), heads
            self.left, self.right = nn.Parameter(torch.randn(heads, outputs) * 0.1), nn.Parameter(torch.randn(heads, outputs) * 0.1)

        def forward(self, x, source, target):
            h = self.lin(x).view(len(x), self.heads, -1)
            score = F.leaky_relu((h * self.left).sum(-1)[source] + (h * self.right).sum(-1)[target], 0.2)
            top = torch.full((len(x), self.heads), float("-inf"), device=x.device).scatter_reduce(0, target[:, None].expand_as(score), score, "amax")
            weight = (score - top[target]).exp()
            total = torch.zeros(len(x), self.heads, device=x.device).index_add(0, target, weight)
            alpha = F.dropout(weight / (total[target] + 1e-9), 0.6, self.training)
            return torch.zeros_like(h).index_add(0, target, h[source] * alpha[..., None]).flatten(1)

    a, b = Layer(256, 32).to(DEVICE), Layer(128, 16).to(DEVICE)
    out = nn.Linear(64, 7).to(DEVICE)
    optimizer = torch.optim.Adam([*a.parameters(), *b.parameters(), *out.parameters()], lr=0.005, weight_decay=5e-4)
    x = torch.randn(nodes, 256).to(DEVICE)
    source, target = torch.randint(0, nodes, (2, edges)).to(DEVICE)
    labels = torch.randint(0, 7, (nodes,)).to(DEVICE)
    mask = (torch.arange(nodes) % 5 == 0).to(DEVICE)
    for _ in range(4):
        y = out(F.elu(b(F.elu(a(x, source, target)), source, target)))
        loss = F.cross_entropy(y[mask], labels[mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def gcn_sparse():
    """A graph convolution through torch.sparse.mm with a normalised COO adjacency."""
    nodes, edges = 20000, 100000
    index = torch.randint(0, nodes, (2, edges))
    index = torch.cat([index, index.flip(0), torch.arange(nodes).repeat(2, 1)], 1)
    adjacency = torch.sparse_coo_tensor(index, torch.full((index.shape[1],), 0.1), (nodes, nodes)).coalesce().to(DEVICE)
    x, labels = torch.randn(nodes, 300).to(DEVICE), torch.randint(0, 10, (nodes,)).to(DEVICE)
    one, two = nn.Linear(300, 128).to(DEVICE), nn.Linear(128, 10).to(DEVICE)
    optimizer = torch.optim.Adam([*one.parameters(), *two.parameters()], lr=0.01)
    for _ in range(4):
        h = F.dropout(F.relu(torch.sparse.mm(adjacency, one(x))))
        loss = F.cross_entropy(torch.sparse.mm(adjacency, two(h)), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


@kind
def crnn_ctc():
    """Convolutions, two bidirectional LSTM layers and CTC over lines of text."""

    class CRNN(nn.Module):
        def __init__(self):
            super().__init__()
            block = lambda i, o, pool: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(pool))
            self.cnn = nn.Sequential(block(1, 64, 2), block(64, 128, 2), block(128, 256, (2, 1)), block(256, 256, (2, 1)))
            self.rnn = nn.LSTM(512, 256, num_layers=2, bidirectional=True, dropout=0.2)
            self.out = nn.Linear(512, 37)

        def forward(self, x):
            x = self.cnn(x)
            n, c, h, w = x.shape
            return self.out(self.rnn(x.permute(3, 0, 1, 2).reshape(w, n, c * h))[0]).log_softmax(2)

    model = CRNN().to(DEVICE)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    for _ in range(4):
        x = torch.randn(48, 1, 32, 160).to(DEVICE)
        lengths = torch.randint(3, 15, (48,))
        labels = torch.randint(1, 37, (int(lengths.sum()),)).to(DEVICE)
        y = model(x)
        loss = F.ctc_loss(y, labels, torch.full((48,), y.shape[0]), lengths, zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5)
        optimizer.step()


@kind
def vae_conv():
    """A convolutional VAE in mixed precision with transposed convolutions."""
    encoder = nn.Sequential(nn.Conv2d(3, 32, 4, 2, 1), nn.SiLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.SiLU(), nn.Conv2d(64, 128, 4, 2, 1), nn.SiLU(), nn.Flatten(), nn.Linear(128 * 64, 256)).to(DEVICE)
    decoder = nn.Sequential(nn.Linear(128, 128 * 64), nn.Unflatten(1, (128, 8, 8)), nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.SiLU(), nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.SiLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1)).to(DEVICE)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters()], lr=1e-4)
    scaler = torch.amp.GradScaler(init_scale=128.0)
    for _ in range(4):
        x = torch.rand(96, 3, 64, 64).to(DEVICE, non_blocking=True)
        with torch.autocast("cuda", torch.float16):
            mean, logvar = encoder(x).chunk(2, 1)
            y = decoder(mean + torch.randn_like(mean) * (0.5 * logvar).exp())
            kl = -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).float().mean()
        loss = F.mse_loss(y.float(), x) + 0.1 * kl
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@kind
def seq2seq_gru():
    """Bahdanau attention over packed sequences, teacher forcing, GRU encoder and cell by cell decoder."""

    class Model(nn.Module):
        def __init__(self, words=8000, hidden=256):
            super().__init__()
            self.source, self.target = nn.Embedding(words, 256, padding_idx=0), nn.Embedding(words, 256, padding_idx=0)
            self.encoder = nn.GRU(256, hidden, batch_first=True, bidirectional=True)
            self.bridge = nn.Linear(2 * hidden, hidden)
            self.cell = nn.GRUCell(256 + 2 * hidden, hidden)
            self.query, self.key, self.score = nn.Linear(hidden, hidden), nn.Linear(2 * hidden, hidden), nn.Linear(hidden, 1)
            self.out = nn.Linear(hidden, words)

        def forward(self, x, lengths, y):
            packed = nn.utils.rnn.pack_padded_sequence(self.source(x), lengths, batch_first=True, enforce_sorted=False)
            states, last = self.encoder(packed)
            states = nn.utils.rnn.pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])[0]
            mask = (x == 0)
            keys, h = self.key(states), torch.tanh(self.bridge(torch.cat([last[0], last[1]], 1)))
            outputs = []
            for word in self.target(y).unbind(1):
                energy = self.score(torch.tanh(self.query(h)[:, None] + keys)).squeeze(-1).masked_fill(mask, -1e9)
                context = (energy.softmax(1)[:, None] @ states).squeeze(1)
                h = self.cell(torch.cat([word, context], 1), h)
                outputs.append(self.out(h))
            return torch.stack(outputs, 1)

    model = Model().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        lengths = torch.randint(10, 41, (64,), generator=generator)
        lengths[0] = 40
        x = torch.randint(1, 8000, (64, 40), generator=generator) * (torch.arange(40)[None] < lengths[:, None])
        y = torch.randint(1, 8000, (64, 25), generator=generator).to(DEVICE)
        logits = model(x.to(DEVICE), lengths, y)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), y[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


@kind
def lstm_language_model():
    """Word-level language model with tied weights, truncated backpropagation and half precision by autocast."""

    class Model(nn.Module):
        def __init__(self, words=10000, hidden=400):
            super().__init__()
            self.embed, self.rnn, self.out = nn.Embedding(words, hidden), nn.LSTM(hidden, hidden, 3, dropout=0.4), nn.Linear(hidden, words)
            self.out.weight = self.embed.weight

        def forward(self, x, state):
            y, state = self.rnn(F.dropout(self.embed(x), 0.3, self.training), state)
            return self.out(y), state

    model = Model().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for amp in (None, torch.bfloat16):
        state = None
        for _ in range(3):
            x = torch.randint(0, 10000, (71, 40)).to(DEVICE)
            state = None if state is None else tuple(it.detach() for it in state)
            with torch.autocast("cuda", amp) if amp else contextlib.nullcontext():
                y, state = model(x[:-1], state)
                loss = F.cross_entropy(y.flatten(0, 1), x[1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
    model.eval()
    with torch.no_grad():
        model(torch.randint(0, 10000, (200, 10)).to(DEVICE), None)


@kind
def diffusion_unet_ema():
    """A small U-Net with attention and time embedding, EMA of the weights, bf16 autocast."""

    class Res(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.a, self.b = nn.Sequential(nn.GroupNorm(8, i), nn.SiLU(), nn.Conv2d(i, o, 3, padding=1)), nn.Sequential(nn.GroupNorm(8, o), nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(o, o, 3, padding=1))
            self.t, self.skip = nn.Linear(256, o), nn.Conv2d(i, o, 1) if i != o else nn.Identity()

        def forward(self, x, t):
            return self.b(self.a(x) + self.t(t)[:, :, None, None]) + self.skip(x)

    class Attention(nn.Module):
        def __init__(self, c, heads=4):
            super().__init__()
            self.norm, self.qkv, self.out, self.heads = nn.GroupNorm(8, c), nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1), heads

        def forward(self, x):
            n, c, h, w = x.shape
            q, k, v = self.qkv(self.norm(x)).view(n, 3, self.heads, c // self.heads, h * w).transpose(-1, -2).unbind(1)
            return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(n, c, h, w))

    class UNet(nn.Module):
        def __init__(self, c=64):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(c, 256), nn.SiLU(), nn.Linear(256, 256))
            self.first = nn.Conv2d(3, c, 3, padding=1)
            self.down = nn.ModuleList([Res(c, c), Res(c, 2 * c), Res(2 * c, 4 * c)])
            self.shrink = nn.ModuleList([nn.Conv2d(c, c, 3, 2, 1), nn.Conv2d(2 * c, 2 * c, 3, 2, 1)])
            self.middle, self.attention = Res(4 * c, 4 * c), Attention(4 * c)
            self.up = nn.ModuleList([Res(6 * c, 2 * c), Res(3 * c, c)])
            self.last = nn.Conv2d(c, 3, 3, padding=1)
            self.c = c

        def forward(self, x, t):
            angles = t[:, None].float() * torch.exp(-torch.arange(self.c // 2, device=x.device) / (self.c // 2) * 9.2)[None]
            t = self.time(torch.cat([angles.sin(), angles.cos()], 1))
            x = a = self.down[0](self.first(x), t)
            x = b = self.down[1](self.shrink[0](x), t)
            x = self.attention(self.middle(self.down[2](self.shrink[1](x), t), t))
            x = self.up[0](torch.cat([F.interpolate(x, scale_factor=2), b], 1), t)
            return self.last(self.up[1](torch.cat([F.interpolate(x, scale_factor=2), a], 1), t))

    model = UNet().to(DEVICE)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    noise_level = torch.linspace(0.99, 0.01, 1000, device=DEVICE)
    for _ in range(4):
        x = torch.randn(24, 3, 64, 64).to(DEVICE)
        t = torch.randint(0, 1000, (24,), device=DEVICE)
        noise, level = torch.randn_like(x), noise_level[t][:, None, None, None]
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.mse_loss(model(level.sqrt() * x + (1 - level).sqrt() * noise, t).float(), noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.01)


@kind
def detection_rois():
    """Boxes proposed by a grid, chosen by top-k, pooled by roi_align and classified."""
    import torchvision

    backbone = torchvision.models.resnet18(weights=None)
    backbone = nn.Sequential(*list(backbone.children())[:-2]).to(DEVICE)
    rpn = nn.Conv2d(512, 5, 1).to(DEVICE)
    head = nn.Sequential(nn.Flatten(), nn.Linear(512 * 49, 512), nn.ReLU(), nn.Linear(512, 21)).to(DEVICE)
    parameters = [*backbone.parameters(), *rpn.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4)
    for _ in range(4):
        x = torch.randn(8, 3, 320, 320).to(DEVICE)
        features = backbone(x)
        out = rpn(features).flatten(2).transpose(1, 2)
        scores, order = out[..., 4].topk(32, dim=1)
        deltas = out[..., :4].gather(1, order[..., None].expand(-1, -1, 4)).sigmoid() * 100
        corner = torch.stack([order % 10, order // 10], -1).float() * 32
        boxes = torch.cat([corner, corner + deltas[..., 2:] + 8], -1)
        pooled = torchvision.ops.roi_align(features, list(boxes.detach().unbind(0)), (7, 7), spatial_scale=1 / 32)
        classes = head(pooled)
        labels = torch.randint(0, 21, (len(classes),)).to(DEVICE)
        loss = F.cross_entropy(classes, labels) + F.binary_cross_entropy_with_logits(scores, torch.zeros_like(scores)) + 0.01 * deltas.abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def detection_nms():
    """torchvision's RetinaNet with its own losses, in training, and with its non-maximum suppression, in evaluation."""
    import torchvision

    model = torchvision.models.detection.retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=5, min_size=256, max_size=320).to(DEVICE)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.005, momentum=0.9)
    for _ in range(3):
        images = [torch.rand(3, 256, 320).to(DEVICE) for _ in range(4)]
        targets = [{"boxes": torch.tensor([[10.0, 20.0, 100.0, 120.0], [50.0, 60.0, 200.0, 220.0]]).to(DEVICE), "labels": torch.tensor([1, 3]).to(DEVICE)} for _ in images]
        loss = sum(model(images, targets).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        model(images)


@kind
def moe_transformer():
    """A transformer whose feed-forward layers are eight experts, two for each token, gathered by index_add."""

    class Experts(nn.Module):
        def __init__(self, d=256, n=8, k=2):
            super().__init__()
            self.gate, self.k = nn.Linear(d, n, bias=False), k
            self.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)) for _ in range(n))

        def forward(self, x):
            flat = x.flatten(0, 1)
            weights, chosen = self.gate(flat).softmax(-1).topk(self.k, -1)
            weights = weights / weights.sum(-1, keepdim=True)
            out = torch.zeros_like(flat)
            for i, expert in enumerate(self.experts):
                token, slot = torch.where(chosen == i)
                out.index_add_(0, token, expert(flat[token]) * weights[token, slot, None])
            return out.view_as(x)

    class Block(nn.Module):
        def __init__(self, d=256):
            super().__init__()
            self.a, self.b, self.attention, self.experts = nn.LayerNorm(d), nn.LayerNorm(d), nn.MultiheadAttention(d, 8, batch_first=True), Experts(d)

        def forward(self, x, mask):
            h = self.a(x)
            x = x + self.attention(h, h, h, attn_mask=mask, is_causal=True, need_weights=False)[0]
            return x + self.experts(self.b(x))

    embed, out = nn.Embedding(4000, 256).to(DEVICE), nn.Linear(256, 4000).to(DEVICE)
    blocks = nn.ModuleList(Block() for _ in range(4)).to(DEVICE)
    optimizer = torch.optim.AdamW([*embed.parameters(), *blocks.parameters(), *out.parameters()], lr=3e-4)
    mask = nn.Transformer.generate_square_subsequent_mask(256).to(DEVICE)
    for _ in range(4):
        tokens = torch.randint(0, 4000, (16, 257)).to(DEVICE)
        x = embed(tokens[:, :-1])
        for block in blocks:
            x = block(x, mask)
        loss = F.cross_entropy(out(x).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def mamba_scan():
    """A selective state space layer as cumulative sums in log space, depthwise convolutions and gates."""

    class Mixer(nn.Module):
        def __init__(self, d=192, state=8):
            super().__init__()
            self.enter, self.conv, self.leave = nn.Linear(d, 4 * d), nn.Conv1d(2 * d, 2 * d, 4, groups=2 * d, padding=3), nn.Linear(2 * d, d)
            self.step, self.bc, self.norm = nn.Linear(2 * d, 2 * d), nn.Linear(2 * d, 2 * state), nn.RMSNorm(d)
            self.decay = nn.Parameter(torch.zeros(2 * d, state))

        def forward(self, x):
            length = x.shape[1]
            u, gate = self.enter(self.norm(x)).chunk(2, -1)
            u = F.silu(self.conv(u.transpose(1, 2))[..., :length].transpose(1, 2))
            dt = F.softplus(self.step(u))
            b, c = self.bc(u).chunk(2, -1)
            log = (-dt[..., None] * self.decay.exp()).cumsum(1).clamp(min=-20)
            states = ((dt * u)[..., None] * b[:, :, None] * (-log).exp()).cumsum(1) * log.exp()
            return x + self.leave((states * c[:, :, None]).sum(-1) * F.silu(gate))

    embed, out = nn.Embedding(256, 192).to(DEVICE), nn.Linear(192, 256).to(DEVICE)
    layers = nn.Sequential(*[Mixer() for _ in range(3)]).to(DEVICE)
    optimizer = torch.optim.AdamW([*embed.parameters(), *layers.parameters(), *out.parameters()], lr=1e-3, fused=True)
    for _ in range(4):
        tokens = torch.randint(0, 256, (8, 301)).to(DEVICE)
        loss = F.cross_entropy(out(layers(embed(tokens[:, :-1]))).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def timeseries_fft():
    """Series decomposed with an FFT: the strongest periods are chosen and mixed by 2-D convolutions (as TimesNet), then FNet layers."""

    class Mix(nn.Module):
        def __init__(self, d=64):
            super().__init__()
            self.conv = nn.Sequential(nn.Conv2d(d, d, 3, padding=1), nn.GELU(), nn.Conv2d(d, d, 3, padding=1))
            self.norm, self.a, self.b = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
            self.weight = nn.Parameter(torch.randn(97, d, 2) * 0.02)

        def forward(self, x):
            n, length, d = x.shape
            for period in (24, 48):
                x = x + self.conv(x.transpose(1, 2).reshape(n, d, length // period, period)).reshape(n, d, length).transpose(1, 2)
            spectrum = torch.fft.rfft(x, dim=1, norm="ortho") * torch.view_as_complex(self.weight)
            x = x + torch.fft.irfft(spectrum, n=length, dim=1, norm="ortho")
            x = x + torch.fft.fft2(self.norm(x)).real
            return x + self.b(F.gelu(self.a(self.norm(x))))

    enter, leave = nn.Linear(7, 64).to(DEVICE), nn.Linear(64, 7).to(DEVICE)
    layers = nn.Sequential(*[Mix() for _ in range(3)]).to(DEVICE)
    optimizer = torch.optim.Adam([*enter.parameters(), *layers.parameters(), *leave.parameters()], lr=1e-3)
    for _ in range(4):
        x = torch.randn(64, 192, 7).to(DEVICE)
        loss = F.l1_loss(leave(layers(enter(x))), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def gaussian_process():
    """Exact Gaussian process regression: cholesky, triangular solves and log determinants."""
    x, y = torch.rand(1200, 6).to(DEVICE), torch.randn(1200).to(DEVICE)
    scale, noise = torch.zeros(6, device=DEVICE, requires_grad=True), torch.zeros((), device=DEVICE, requires_grad=True)
    optimizer = torch.optim.Adam([scale, noise], lr=0.05)
    for _ in range(4):
        scaled = x / scale.exp()
        kernel = torch.exp(-0.5 * torch.cdist(scaled, scaled).pow(2)) + (noise.exp() + 1e-3) * torch.eye(len(x), device=DEVICE)
        factor = torch.linalg.cholesky(kernel)
        alpha = torch.cholesky_solve(y[:, None], factor)
        loss = 0.5 * (y[:, None] * alpha).sum() + factor.diagonal().log().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def wgan_gp():
    """A critic with gradient penalty (gradients of gradients through convolutions), and its generator."""
    generator = nn.Sequential(nn.ConvTranspose2d(64, 256, 4), nn.ReLU(), nn.ConvTranspose2d(256, 128, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()).to(DEVICE)
    critic = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 128, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(128, 256, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(256, 1, 4), nn.Flatten()).to(DEVICE)
    g, d = torch.optim.Adam(generator.parameters(), 1e-4, betas=(0.0, 0.9)), torch.optim.Adam(critic.parameters(), 1e-4, betas=(0.0, 0.9))
    for _ in range(3):
        real = torch.randn(64, 3, 32, 32).to(DEVICE)
        for _ in range(2):
            fake = generator(torch.randn(64, 64, 1, 1, device=DEVICE)).detach()
            mix = torch.rand(64, 1, 1, 1, device=DEVICE)
            between = (mix * real + (1 - mix) * fake).requires_grad_()
            gradient, = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
            loss = critic(fake).mean() - critic(real).mean() + 10 * (gradient.flatten(1).norm(2, dim=1) - 1).pow(2).mean()
            d.zero_grad()
            loss.backward()
            d.step()
        loss = -critic(generator(torch.randn(64, 64, 1, 1, device=DEVICE))).mean()
        g.zero_grad()
        loss.backward()
        g.step()


@kind
def graphed_training():
    """A whole training step captured in a CUDA graph and replayed."""
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Dropout(0.1), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
    x, y = torch.zeros(512, 256, device=DEVICE), torch.zeros(512, dtype=torch.long, device=DEVICE)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(5):
        x.copy_(torch.randn(512, 256))
        y.copy_(torch.randint(0, 10, (512,)))
        graph.replay()
