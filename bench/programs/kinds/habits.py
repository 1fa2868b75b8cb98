"""Habits that people have around a model, in mixtures that the other modules lack: sizes that change, two passes for one step, networks
that teach each other, derivatives for forces, codecs that listen, evaluation in between. Written before the phantom had run any."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import classify, images, kind, language, llama, tokens, train


@kind
def several_sizes_tried_out():
    """A segmentation whose crops have another size each step, every size tried out by cuDNN."""
    import torchvision

    torch.backends.cudnn.benchmark = True
    model = torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=19, aux_loss=True).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for side in (256, 320, 288, 384, 256, 352):
        x, y = torch.randn(6, 3, side, side).cuda(), torch.randint(0, 19, (6, side, side)).cuda()
        told = model(x)
        loss = F.cross_entropy(told["out"], y) + 0.4 * F.cross_entropy(told["aux"], y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


@kind
def gradients_cached_for_contrast():
    """A contrastive batch too large for one graph: embeddings without one, their gradients, and chunks again with one."""
    import transformers

    config = transformers.BertConfig(hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048)
    model = transformers.BertModel(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-5)
    for (ids,) in tokens(256, 64, 30000):
        ids = ids.cuda()
        states, kept = [], []
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            for chunk in ids.split(32):
                states.append(torch.cuda.get_rng_state())
                kept.append(model(chunk).pooler_output.float())
        embedded = F.normalize(torch.cat(kept), dim=1).requires_grad_()
        first, second = embedded[::2], embedded[1::2]
        loss = F.cross_entropy(first @ second.t() / 0.05, torch.arange(128, device="cuda"))
        loss.backward()
        optimizer.zero_grad()
        for chunk, state, gradient in zip(ids.split(32), states, embedded.grad.split(32)):
            torch.cuda.set_rng_state(state)
            with torch.autocast("cuda", torch.bfloat16):
                again = F.normalize(model(chunk).pooler_output.float(), dim=1)
            (again * gradient).sum().backward()
        optimizer.step()


@kind
def student_teacher_crops():
    """DINO: a student that sees all crops, a teacher by moving average that sees the large ones, centred in float32."""
    import torchvision

    student = torchvision.models.vit_b_32(image_size=224).cuda()
    student.heads = nn.Sequential(nn.Linear(768, 2048), nn.GELU(), nn.Linear(2048, 256), nn.utils.parametrizations.weight_norm(nn.Linear(256, 16384, bias=False))).cuda()
    teacher = torchvision.models.vit_b_32(image_size=224).cuda()
    teacher.heads = nn.Sequential(nn.Linear(768, 2048), nn.GELU(), nn.Linear(2048, 256), nn.utils.parametrizations.weight_norm(nn.Linear(256, 16384, bias=False))).cuda()
    teacher.load_state_dict(student.state_dict())
    teacher.requires_grad_(False)
    center = torch.zeros(1, 16384, device="cuda")
    optimizer = torch.optim.AdamW(student.parameters(), 5e-4, weight_decay=0.04)
    scaler = torch.amp.GradScaler()
    for _ in range(3):
        large = torch.randn(2, 24, 3, 224, 224).cuda()
        small = F.interpolate(torch.randn(96, 3, 96, 96).cuda(), size=(224, 224), mode="bicubic")
        with torch.autocast("cuda", torch.float16):
            with torch.no_grad():
                wanted = teacher(large.flatten(0, 1))
                soft = F.softmax((wanted.float() - center) / 0.04, dim=-1).chunk(2)
            told = student(torch.cat([large.flatten(0, 1), small])).float() / 0.1
            parts = told.split(24)
            losses = [-(it * F.log_softmax(part, dim=-1)).sum(-1).mean() for i, it in enumerate(soft) for j, part in enumerate(parts) if i != j]
            loss = sum(losses) / len(losses)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        for p in student.parameters():
            if p.grad is not None:
                p.grad.mul_((3.0 / (p.grad.norm() + 1e-6)).clamp(max=1))
        scaler.step(optimizer)
        scaler.update()
        with torch.no_grad():
            center = center * 0.9 + wanted.float().mean(0, keepdim=True) * 0.1
            for a, b in zip(student.parameters(), teacher.parameters()):
                b.mul_(0.996).add_(a.detach(), alpha=0.004)


@kind
def forces_from_energies():
    """A potential of molecules: forces are derivatives of the energy, and are learned, so there are second ones."""

    class Potential(nn.Module):
        def __init__(self, width=128, layers=4):
            super().__init__()
            self.of_kind = nn.Embedding(20, width)
            self.filters = nn.ModuleList([nn.Sequential(nn.Linear(50, width), nn.SiLU(), nn.Linear(width, width)) for _ in range(layers)])
            self.updates = nn.ModuleList([nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width)) for _ in range(layers)])
            self.out = nn.Sequential(nn.Linear(width, 64), nn.SiLU(), nn.Linear(64, 1))

        def forward(self, kinds, places, sources, targets, molecule, n):
            away = places[sources] - places[targets]
            length = away.pow(2).sum(-1).add(1e-8).sqrt()
            radial = torch.exp(-10 * (length[:, None] - torch.linspace(0, 5, 50, device=places.device)) ** 2)
            cut = 0.5 * (torch.cos(length * math.pi / 5).add(1))
            h = self.of_kind(kinds)
            for filters, update in zip(self.filters, self.updates):
                messages = h[sources] * filters(radial) * cut[:, None]
                h = h + update(torch.zeros_like(h).index_add_(0, targets, messages))
            return torch.zeros(n, 1, device=h.device).index_add(0, molecule, self.out(h)).squeeze(1)

    model = Potential().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, amsgrad=True)
    for count in (40, 48, 36, 44):
        atoms = 21 * count
        kinds = torch.randint(0, 20, (atoms,)).cuda()
        places = torch.randn(atoms, 3).cuda().requires_grad_()
        pairs = torch.combinations(torch.arange(21), 2)
        pairs = torch.cat([pairs, pairs.flip(1)])
        edges = (pairs[None] + 21 * torch.arange(count)[:, None, None]).flatten(0, 1).t().cuda()
        molecule = torch.arange(count).repeat_interleave(21).cuda()
        energy = model(kinds, places, edges[0], edges[1], molecule, count)
        forces = -torch.autograd.grad(energy.sum(), places, create_graph=True)[0]
        loss = F.mse_loss(energy, torch.randn(count).cuda()) + 100 * F.mse_loss(forces, torch.randn(atoms, 3).cuda())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10)
        optimizer.step()


@kind
def codec_with_residual_books():
    """An audio codec: eight codebooks one after the other, spectrograms at several scales, and critics of periods."""

    class Codec(nn.Module):
        def __init__(self):
            super().__init__()
            sizes, steps = (32, 64, 128, 256, 512), (2, 4, 5, 8)
            down, up = [nn.Conv1d(1, 32, 7, padding=3)], [nn.Conv1d(512, 512, 7, padding=3)]
            for a, b, s in zip(sizes, sizes[1:], steps):
                down += [nn.ELU(), nn.Conv1d(a, a, 3, padding=3, dilation=3), nn.ELU(), nn.Conv1d(a, b, 2 * s, s, padding=math.ceil(s / 2))]
            for a, b, s in zip(sizes[::-1], sizes[-2::-1], steps[::-1]):
                up += [nn.ELU(), nn.ConvTranspose1d(a, b, 2 * s, s, padding=s // 2 + s % 2, output_padding=s % 2)]
            self.down, self.up = nn.Sequential(*down), nn.Sequential(*up, nn.ELU(), nn.Conv1d(32, 1, 7, padding=3), nn.Tanh())
            self.books = nn.ParameterList([torch.randn(1024, 512) for _ in range(8)])

        def forward(self, wave):
            x = self.down(wave)
            left, whole, cost = x.transpose(1, 2), 0, 0
            for book in self.books:
                nearest = torch.cdist(left.flatten(0, 1), book).argmin(1).view(left.shape[:2])
                found = F.embedding(nearest, book)
                cost = cost + F.mse_loss(left.detach(), found) + 0.25 * F.mse_loss(left, found.detach())
                whole, left = whole + left + (found - left).detach(), left - found.detach()
            return self.up(whole.transpose(1, 2)), cost

    class Critic(nn.Module):
        def __init__(self, period):
            super().__init__()
            self.period = period
            self.layers = nn.ModuleList([nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0)) for a, b in ((1, 32), (32, 128), (128, 512))] + [nn.Conv2d(512, 1, (3, 1), padding=(1, 0))])

        def forward(self, wave):
            x = F.pad(wave, (0, -wave.shape[-1] % self.period), "reflect").unflatten(-1, (-1, self.period))
            for layer in self.layers:
                x = F.leaky_relu(layer(x), 0.1)
            return x

    model, critics = Codec().cuda(), nn.ModuleList([Critic(p) for p in (2, 3, 5, 7, 11)]).cuda()
    mine, theirs = torch.optim.AdamW(model.parameters(), 3e-4, (0.8, 0.99)), torch.optim.AdamW(critics.parameters(), 3e-4, (0.8, 0.99))
    for _ in range(3):
        wave = torch.randn(12, 1, 24000).cuda()
        made, cost = model(wave)
        made = made[..., : wave.shape[-1]]
        wave = wave[..., : made.shape[-1]]
        loss = sum(F.relu(1 - it(wave)).mean() + F.relu(1 + it(made.detach())).mean() for it in critics)
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        heard = 0
        for n in (256, 512, 1024, 2048):
            window = torch.hann_window(n, device="cuda")
            a, b = (torch.stft(it.squeeze(1), n, n // 4, window=window, return_complex=True).abs().clamp(min=1e-5) for it in (made, wave))
            heard = heard + F.l1_loss(a, b) + F.mse_loss(a.log(), b.log())
        loss = heard + cost - sum(it(made).mean() for it in critics)
        mine.zero_grad()
        loss.backward()
        mine.step()


@kind
def trained_and_looked_at_in_between():
    """Training in bf16, and every two steps an evaluation under inference_mode whose logits go to the host at the end."""
    import transformers

    config = transformers.GPT2Config(n_layer=6, n_embd=768, n_head=12)
    model = transformers.GPT2LMHeadModel(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=True)
    for i, (ids,) in enumerate(tokens(8, 384, 50257, steps=5)):
        with torch.autocast("cuda", torch.bfloat16):
            loss = language(model, ids.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if i % 2 == 1:
            model.eval()
            with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
                kept = [model(it.cuda()).logits[:, -1] for (it,) in tokens(24, 320, 50257, steps=3)]
            torch.cat(kept).softmax(-1).topk(5).indices.cpu()
            model.train()


@kind
def diffusion_transformer_guided():
    """A DiT with adaptive norms and a moving average, conditions dropped; then a guided sampling of ten steps."""

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.one, self.two = nn.LayerNorm(width, elementwise_affine=False), nn.LayerNorm(width, elementwise_affine=False)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
            self.adapt = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

        def forward(self, x, c):
            a, b, gate, d, e, other = self.adapt(c)[:, None].chunk(6, -1)
            q, k, v = self.qkv(self.one(x) * (1 + b) + a).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            x = x + gate * self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            return x + other * self.mlp(self.two(x) * (1 + e) + d)

    class Transformer(nn.Module):
        def __init__(self, width=512, layers=8):
            super().__init__()
            self.patch, self.places = nn.Conv2d(4, width, 2, 2), nn.Parameter(torch.zeros(1, 256, width))
            self.times, self.labels = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width)), nn.Embedding(1001, width)
            self.blocks, self.last = nn.ModuleList([Block(width, 8) for _ in range(layers)]), nn.Linear(width, 16)

        def forward(self, x, t, y):
            angles = t[:, None].float() * torch.exp(-math.log(10000) * torch.arange(128, device=x.device) / 128)
            c = self.times(torch.cat([angles.cos(), angles.sin()], -1)) + self.labels(y)
            h = self.patch(x).flatten(2).transpose(1, 2) + self.places
            for block in self.blocks:
                h = block(h, c)
            return F.fold(self.last(h).transpose(1, 2), 32, 2, stride=2)

    model = Transformer().cuda()
    average = copy.deepcopy(model).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0)
    for _ in range(3):
        x, y, t = torch.randn(48, 4, 32, 32).cuda(), torch.randint(0, 1000, (48,)).cuda(), torch.randint(0, 1000, (48,)).cuda()
        y = torch.where(torch.rand(48, device="cuda") < 0.1, 1000, y)
        noise = torch.randn_like(x)
        part = (1 - t / 1000).view(-1, 1, 1, 1)
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.mse_loss(model(part.sqrt() * x + (1 - part).sqrt() * noise, t, y).float(), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.001)
    with torch.no_grad():
        x, y = torch.randn(32, 4, 32, 32, device="cuda"), torch.arange(32, device="cuda")
        for i in range(10):
            t = torch.full((64,), 999 - 100 * i, device="cuda")
            with_label, without = average(torch.cat([x, x]), t, torch.cat([y, torch.full_like(y, 1000)])).chunk(2)
            x = x - 0.1 * (without + 4 * (with_label - without))
        x.clamp_(-1, 1).cpu()


@kind
def captions_of_pictures():
    """A vision encoder that is frozen, a language decoder that looks at it, in fp16 with labels that are padded."""
    import transformers

    encoder = transformers.ViTConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536)
    decoder = transformers.GPT2Config(n_embd=384, n_layer=6, n_head=6, add_cross_attention=True, is_decoder=True)
    model = transformers.VisionEncoderDecoderModel(encoder=transformers.ViTModel(encoder), decoder=transformers.GPT2LMHeadModel(decoder))
    model.config.decoder_start_token_id = model.config.pad_token_id = 50256
    model.encoder.requires_grad_(False)
    model.cuda()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 5e-5)
    scaler = torch.amp.GradScaler("cuda")
    for n in (48, 33, 57):
        pictures, labels = torch.randn(16, 3, 224, 224).cuda(), torch.randint(0, 50000, (16, n))
        labels[:, n // 2 :][torch.rand(16, n - n // 2) < 0.3] = -100
        with torch.autocast("cuda", torch.float16):
            loss = model(pixel_values=pictures, labels=labels.cuda()).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


@kind
def retention_in_chunks():
    """A linear attention that carries a state from chunk to chunk, checkpointed with the reentrant form."""
    from torch.utils.checkpoint import checkpoint

    class Retention(nn.Module):
        def __init__(self, width=512, heads=8):
            super().__init__()
            self.heads, self.norm = heads, nn.RMSNorm(width)
            self.qkvg, self.out = nn.Linear(width, 4 * width, bias=False), nn.Linear(width, width, bias=False)
            self.register_buffer("decay", 1 - 2.0 ** (-5 - torch.arange(heads).float()))
            self.mlp = nn.Sequential(nn.RMSNorm(width), nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

        def forward(self, x):
            q, k, v, g = self.qkvg(self.norm(x)).unflatten(-1, (4, self.heads, -1)).permute(2, 0, 3, 1, 4)
            state, outs = torch.zeros(x.shape[0], self.heads, q.shape[-1], q.shape[-1], device=x.device), []
            steps = torch.arange(64, device=x.device)
            inner = torch.where(steps[:, None] >= steps, self.decay.view(-1, 1, 1) ** (steps[:, None] - steps).clamp(min=0), 0.0)
            for a, b, c in zip(q.split(64, 2), k.split(64, 2), v.split(64, 2)):
                outs.append((a @ b.transpose(-1, -2) * inner) @ c + a @ state * self.decay.view(-1, 1, 1))
                state = state * self.decay.view(-1, 1, 1) ** 64 + b.transpose(-1, -2) @ c
            x = x + self.out((torch.cat(outs, 2).transpose(1, 2).flatten(2)) * F.silu(g.transpose(1, 2).flatten(2)))
            return x + self.mlp(x)

    blocks, embed, head = nn.ModuleList([Retention() for _ in range(6)]).cuda(), nn.Embedding(16000, 512).cuda(), nn.Linear(512, 16000).cuda()
    parameters = [*blocks.parameters(), *embed.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, 1e-3)
    for (ids,) in tokens(12, 512, 16000):
        ids = ids.cuda()
        x = embed(ids)
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=True)
        loss = F.cross_entropy(head(x)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def kolmogorov_arnold_splines():
    """Layers of splines: each edge a function of its own, all bases of all inputs at once."""

    class Splines(nn.Module):
        def __init__(self, inside, outside, grid=8, order=3):
            super().__init__()
            self.order = order
            self.register_buffer("grid", torch.linspace(-1 - 2 * order / grid, 1 + 2 * order / grid, grid + 2 * order + 1).expand(inside, -1).contiguous())
            self.base, self.weight = nn.Linear(inside, outside), nn.Parameter(torch.randn(outside, inside, grid + order) * 0.1)

        def forward(self, x):
            y = x.unsqueeze(-1)
            bases = ((y >= self.grid[:, :-1]) & (y < self.grid[:, 1:])).to(x.dtype)
            for k in range(1, self.order + 1):
                left = (y - self.grid[:, : -(k + 1)]) / (self.grid[:, k:-1] - self.grid[:, : -(k + 1)])
                right = (self.grid[:, k + 1 :] - y) / (self.grid[:, k + 1 :] - self.grid[:, 1:-k])
                bases = left * bases[..., :-1] + right * bases[..., 1:]
            return self.base(F.silu(x)) + F.linear(bases.flatten(1), self.weight.flatten(1))

    model = nn.Sequential(nn.Flatten(), Splines(784, 256), Splines(256, 128), Splines(128, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    for x, y in images(512, 1, 28, 28, steps=4):
        loss = classify(model, x.cuda(), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


@kind
def averaged_and_normalised_again():
    """Stochastic weight averaging at the end of training, and batch norms found again for the average."""
    import torchvision

    model = torchvision.models.resnext50_32x4d(num_classes=200).cuda().to(memory_format=torch.channels_last)
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    data = [(x.to(memory_format=torch.channels_last), y) for x, y in images(20, 3, 176, 176, classes=200, steps=4)]
    for i, it in enumerate(data):
        train(model, [it], classify, optimizer, autocast=torch.bfloat16)
        if i >= 2:
            average.update_parameters(model)
    torch.optim.swa_utils.update_bn(data, average, device="cuda")
    average.eval()
    with torch.no_grad():
        torch.cat([average(x.cuda()).argmax(1) for x, _ in data]).cpu()


@kind
def reward_model_of_pairs():
    """A language model with a scalar head, chosen and rejected in one batch of the longest length, in pure bf16."""
    model = llama(hidden_size=768, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=12, num_key_value_heads=4).to("cuda", torch.bfloat16)
    model.lm_head = nn.Linear(768, 1, bias=False, device="cuda", dtype=torch.bfloat16)
    model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5, foreach=False)
    generator = torch.Generator().manual_seed(3)
    for _ in range(4):
        lengths = torch.randint(200, 700, (8,), generator=generator)
        n = int(lengths.max())
        ids = torch.randint(0, 32000, (8, n), generator=generator).cuda()
        mask = (torch.arange(n) < lengths[:, None]).cuda()
        rewards = model(input_ids=ids, attention_mask=mask).logits.squeeze(-1)
        last = rewards.gather(1, (lengths.cuda() - 1)[:, None]).squeeze(1)
        loss = -F.logsigmoid(last[:4] - last[4:]).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


@kind
def masked_video_tubes():
    """VideoMAE: nine tubes of ten are hidden, and only what is seen is encoded."""
    import transformers

    config = transformers.VideoMAEConfig(image_size=112, num_frames=8, hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536, decoder_hidden_size=192, decoder_num_hidden_layers=2, decoder_num_attention_heads=3, decoder_intermediate_size=768)
    model = transformers.VideoMAEForPreTraining(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1.5e-4, betas=(0.9, 0.95))
    n = 4 * 7 * 7
    for _ in range(3):
        hidden = torch.zeros(12, n, dtype=torch.bool)
        for row in hidden:
            row[torch.randperm(n)[: int(0.9 * n)]] = True
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(torch.randn(12, 8, 3, 112, 112).cuda(), bool_masked_pos=hidden.cuda()).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def jacobian_of_a_flow():
    """A flow whose log-determinant is taken exactly, by a Jacobian of each sample under vmap."""
    from torch.func import functional_call, jacrev, vmap

    model = nn.Sequential(nn.Linear(24, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 24)).cuda()
    optimizer = torch.optim.NAdam(model.parameters(), 1e-3)
    for _ in range(3):
        x = torch.randn(768, 24).cuda()
        parameters = dict(model.named_parameters())

        def mapped(one):
            out = one + 0.1 * functional_call(model, parameters, (one,))
            return out, out

        jacobians, z = vmap(jacrev(mapped, has_aux=True))(x)
        loss = 0.5 * z.pow(2).sum(1).mean() - torch.linalg.slogdet(jacobians).logabsdet.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def long_sequence_in_pieces():
    """Truncated backpropagation through time: a GRU's state is carried over, cut from its past, metrics kept on the host."""
    embed, rnn, head = nn.Embedding(8000, 400).cuda(), nn.GRU(400, 800, 3, dropout=0.3, batch_first=True).cuda(), nn.Linear(800, 8000).cuda()
    parameters = [*embed.parameters(), *rnn.parameters(), *head.parameters()]
    optimizer = torch.optim.Adadelta(parameters, 1.0)
    text, state, losses = torch.randint(0, 8000, (40, 421)), None, []
    for start in range(0, 420, 70):
        x, y = text[:, start : start + 70].cuda(), text[:, start + 1 : start + 71].cuda()
        out, state = rnn(F.dropout(embed(x), 0.2), state)
        state = state.detach()
        loss = F.cross_entropy(head(out).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(parameters, 0.25)
        optimizer.step()
        losses.append(loss.item())


@kind
def mobile_attention_in_halves():
    """MobileViT in channels_last and fp16 with a moving average kept in float32, mixup and label smoothing."""
    import transformers

    config = transformers.MobileViTConfig(image_size=192, num_labels=100)
    model = transformers.MobileViTForImageClassification(config).cuda().to(memory_format=torch.channels_last)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer, scaler = torch.optim.RMSprop(model.parameters(), 1e-3, momentum=0.9), torch.amp.GradScaler("cuda")
    for x, y in images(36, 3, 192, 192, classes=100):
        x, y = x.cuda().to(memory_format=torch.channels_last), F.one_hot(y, 100).float().cuda()
        x, y = 0.7 * x + 0.3 * x.roll(1, 0), 0.7 * y + 0.3 * y.roll(1, 0)
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(model(x).logits, y, label_smoothing=0.1)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        with torch.no_grad():
            for a, b in zip(average.state_dict().values(), model.state_dict().values()):
                a.copy_(0.99 * a + 0.01 * b if a.is_floating_point() else b)
