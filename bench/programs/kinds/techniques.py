"""The techniques of training: recurrent networks, long sequences, mixed precision, compilation, offloading and others."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import classify, images, kind, language, llama, tokens, train


# Recurrent networks


@kind
def gru_classifier_packed():
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(30000, 256)
            self.gru = nn.GRU(256, 384, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2)
            self.head = nn.Linear(768, 5)

        def forward(self, ids, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(self.embedding(ids), lengths.cpu(), batch_first=True, enforce_sorted=False)
            _, last = self.gru(packed)
            return self.head(torch.cat([last[-2], last[-1]], 1))

    model = Classifier().cuda()
    batches = [(torch.randint(0, 30000, (48, 200)), torch.arange(200, 152, -1), torch.randint(0, 5, (48,))) for _ in range(3)]
    train(model, batches, lambda m, ids, lengths, y: F.cross_entropy(m(ids, lengths), y), torch.optim.Adam(model.parameters()), clip=5.0)


@kind
def bilstm_tagger_amp():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(20000, 300)
            self.lstm = nn.LSTM(300, 512, num_layers=2, batch_first=True, bidirectional=True)
            self.head = nn.Linear(1024, 40)

        def forward(self, ids):
            return self.head(self.lstm(self.embedding(ids))[0])

    model = Tagger().cuda()
    batches = [(torch.randint(0, 20000, (64, 96)), torch.randint(0, 40, (64, 96))) for _ in range(3)]
    train(model, batches, lambda m, x, y: F.cross_entropy(m(x).flatten(0, 1), y.flatten()), torch.optim.AdamW(model.parameters()), autocast=torch.float16, scaler=torch.amp.GradScaler())


@kind
def speech_lstm_ctc():
    class Speech(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Sequential(nn.Conv1d(80, 256, 3, stride=2, padding=1), nn.ReLU(), nn.Conv1d(256, 256, 3, padding=1), nn.ReLU())
            self.lstm = nn.LSTM(256, 320, num_layers=3, bidirectional=True, dropout=0.1)
            self.head = nn.Linear(640, 32)

        def forward(self, mel):
            return self.head(self.lstm(self.conv(mel).permute(2, 0, 1))[0]).log_softmax(-1)

    model = Speech().cuda()
    batches = [(torch.randn(16, 80, 800), torch.randint(1, 32, (16, 60))) for _ in range(3)]

    def loss_of(m, mel, labels):
        out = m(mel)
        return F.ctc_loss(out, labels, torch.full((16,), out.shape[0], dtype=torch.long), torch.full((16,), 60, dtype=torch.long), zero_infinity=True)

    train(model, batches, loss_of, torch.optim.AdamW(model.parameters()))


@kind
def lstm_cell_loop():
    """An unrolled decoder: one LSTMCell a step, teacher forcing."""

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(8000, 256)
            self.cell = nn.LSTMCell(256, 512)
            self.head = nn.Linear(512, 8000)

        def forward(self, ids):
            h = c = torch.zeros(ids.shape[0], 512, device=ids.device)
            out = []
            for x in self.embedding(ids).unbind(1):
                h, c = self.cell(x, (h, c))
                out.append(self.head(h))
            return torch.stack(out, 1)

    model = Decoder().cuda()
    train(model, tokens(64, 60, 8000), lambda m, x: F.cross_entropy(m(x).flatten(0, 1), x.flatten()), torch.optim.Adam(model.parameters()))


# Transformers


@kind
def llama_gqa_bf16_long():
    model = llama().to("cuda", torch.bfloat16)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False
    train(model, tokens(1, 8192, 32000), language, torch.optim.AdamW(model.parameters(), fused=True), clip=1.0)


@kind
def llama_lora_bf16():
    class Lora(nn.Module):
        def __init__(self, base, rank=16):
            super().__init__()
            self.base = base
            self.a = nn.Parameter(torch.randn(rank, base.in_features, dtype=torch.bfloat16) * 0.01)
            self.b = nn.Parameter(torch.zeros(base.out_features, rank, dtype=torch.bfloat16))

        def forward(self, x):
            return self.base(x) + F.linear(F.linear(F.dropout(x, 0.05, self.training), self.a), self.b)

    model = llama().to(torch.bfloat16)
    model.requires_grad_(False)
    for layer in model.model.layers:
        for name in ("q_proj", "v_proj"):
            setattr(layer.self_attn, name, Lora(getattr(layer.self_attn, name)))
    model.cuda()
    train(model, tokens(4, 1024, 32000), language, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad]))


@kind
def bert_padded_amp_bf16():
    import transformers

    model = transformers.BertForSequenceClassification(transformers.BertConfig(num_labels=3)).cuda()

    def batches():
        for longest in (128, 96, 111, 128):
            ids = torch.randint(0, 30000, (24, longest))
            mask = (torch.arange(longest)[None] < torch.randint(longest // 2, longest + 1, (24, 1))).long()
            yield ids, mask, torch.randint(0, 3, (24,))

    train(model, batches(), lambda m, ids, mask, y: m(input_ids=ids, attention_mask=mask, labels=y).loss, torch.optim.AdamW(model.parameters()), autocast=torch.bfloat16)


@kind
def attention_fp16_dropout_masks():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(512, 512 + 2 * 128)
            self.out = nn.Linear(512, 512)

        def forward(self, x, mask):
            b, s, _ = x.shape
            q, k, v = self.qkv(x).split([512, 128, 128], -1)
            q = q.view(b, s, 8, 64).transpose(1, 2)
            k, v = (it.view(b, s, 2, 64).transpose(1, 2) for it in (k, v))
            causal = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1, enable_gqa=True)
            k, v = (it.repeat_interleave(4, 1) for it in (k, v))
            masked = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
            return x + self.out((causal + masked).transpose(1, 2).reshape(b, s, 512))

    model = nn.ModuleList(Block() for _ in range(6)).to("cuda", torch.float16)

    def loss_of(m, x, mask):
        x = x.half()
        for block in m:
            x = block(x, mask.bool())
        return x.float().pow(2).mean()

    batches = [(torch.randn(8, 640, 512), (torch.arange(640)[None] < torch.full((8, 1), 500)).int()) for _ in range(3)]
    train(model, batches, loss_of, torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9))


@kind
def moe_top2_bf16():
    class Experts(nn.Module):
        def __init__(self, width=512, experts=8):
            super().__init__()
            self.gate = nn.Linear(width, experts)
            self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 2048), nn.GELU(), nn.Linear(2048, width)) for _ in range(experts))

        def forward(self, x):
            """Dense dispatch, as in the first Switch code: every expert sees a fixed capacity."""
            shape, x = x.shape, x.flatten(0, -2)
            weights, chosen = self.gate(x).softmax(-1).topk(2)
            capacity = 2 * x.shape[0] // len(self.experts)
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                share = (weights * (chosen == number)).sum(-1)
                top, where = share.topk(capacity)
                out = out.index_add(0, where, expert(x[where]) * top[:, None].to(x.dtype))
            return out.view(shape)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(16000, 512)
            self.layers = nn.ModuleList(nn.ModuleList([nn.MultiheadAttention(512, 8, batch_first=True), Experts()]) for _ in range(4))
            self.head = nn.Linear(512, 16000)

        def forward(self, ids):
            x = self.embedding(ids)
            for attention, experts in self.layers:
                x = x + attention(x, x, x, need_weights=False)[0]
                x = x + experts(x)
            return self.head(x)

    model = Model().cuda()
    train(model, tokens(8, 512, 16000), lambda m, x: F.cross_entropy(m(x).flatten(0, 1), x.flatten()), torch.optim.AdamW(model.parameters()), autocast=torch.bfloat16)


@kind
def gpt2_generate_kv_cache():
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(bos_token_id=0, eos_token_id=None)).cuda().eval()
    ids = torch.randint(0, 50000, (16, 64)).cuda()
    with torch.no_grad():
        model.generate(ids, max_new_tokens=60, do_sample=False, pad_token_id=0)


@kind
def llama_eight_bit_adam():
    """Blockwise 8-bit states, written out with tensor operations."""

    class Adam8(torch.optim.Optimizer):
        def __init__(self, params, lr=1e-4):
            super().__init__(params, dict(lr=lr))

        @staticmethod
        def pack(x):
            blocks = F.pad(x.flatten(), (0, -x.numel() % 256)).view(-1, 256)
            scale = blocks.abs().amax(1, keepdim=True).clamp_min(1e-12)
            return (blocks / scale * 127).round().to(torch.int8), scale

        @staticmethod
        def unpack(packed, like):
            return (packed[0].float() * packed[1] / 127).flatten()[: like.numel()].view_as(like)

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state, grad = self.state[p], p.grad.float()
                    m = self.unpack(state["m"], grad) if state else torch.zeros_like(grad)
                    v = self.unpack(state["v"], grad) if state else torch.zeros_like(grad)
                    m.lerp_(grad, 0.1)
                    v.lerp_(grad.square(), 0.01)
                    p.add_((m / (v.sqrt() + 1e-8)).to(p.dtype), alpha=-group["lr"])
                    state["m"], state["v"] = self.pack(m), self.pack(v)

    model = llama(num_hidden_layers=6).to("cuda", torch.bfloat16)
    train(model, tokens(4, 512, 32000), language, Adam8(model.parameters()))


@kind
def t5_bf16_adafactor():
    import transformers

    model = transformers.T5ForConditionalGeneration(transformers.T5Config(d_model=512, d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0)).to("cuda", torch.bfloat16)
    batches = [(torch.randint(0, 32000, (8, 300)), torch.randint(0, 32000, (8, 80))) for _ in range(3)]
    train(model, batches, lambda m, x, y: m(input_ids=x, labels=y).loss, torch.optim.Adafactor(model.parameters()))


# Vision


@kind
def r3d_video_channels_last_amp():
    import torchvision

    model = torchvision.models.video.r3d_18(weights=None, num_classes=10).cuda().to(memory_format=torch.channels_last_3d)
    train(model, images(4, 3, 16, 112, 112), lambda m, x, y: F.cross_entropy(m(x.to(memory_format=torch.channels_last_3d)), y), torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), autocast=torch.float16, scaler=torch.amp.GradScaler())


@kind
def r2plus1d_video():
    import torchvision

    model = torchvision.models.video.r2plus1d_18(weights=None, num_classes=10).cuda()
    train(model, images(2, 3, 8, 112, 112), classify, torch.optim.SGD(model.parameters(), 0.01))


@kind
def diffusion_unet_bf16():
    class Residual(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.a, self.b = nn.Conv2d(i, o, 3, padding=1), nn.Conv2d(o, o, 3, padding=1)
            self.n, self.k, self.t = nn.GroupNorm(32, i), nn.GroupNorm(32, o), nn.Linear(512, o)
            self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

        def forward(self, x, t):
            h = self.a(F.silu(self.n(x))) + self.t(F.silu(t))[:, :, None, None]
            return self.skip(x) + self.b(F.dropout(F.silu(self.k(h)), 0.1))

    class Attention(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.n, self.qkv, self.o = nn.GroupNorm(32, c), nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1)

        def forward(self, x):
            b, c, h, w = x.shape
            q, k, v = self.qkv(self.n(x)).view(b, 3, c // 64, 64, h * w).transpose(3, 4).unbind(1)
            return x + self.o(F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(b, c, h, w))

    class Unet(nn.Module):
        def __init__(self, widths=(128, 256, 384)):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(128, 512), nn.SiLU(), nn.Linear(512, 512))
            self.first = nn.Conv2d(4, widths[0], 3, padding=1)
            pairs = list(zip(widths, widths[1:]))
            self.down = nn.ModuleList(nn.ModuleList([Residual(a, a), nn.Conv2d(a, b, 3, stride=2, padding=1), Attention(b)]) for a, b in pairs)
            self.middle = Residual(widths[-1], widths[-1])
            self.up = nn.ModuleList(nn.ModuleList([nn.Conv2d(b, a, 3, padding=1), Residual(2 * a, a)]) for a, b in reversed(pairs))
            self.last = nn.Conv2d(widths[0], 4, 3, padding=1)

        def forward(self, x, t):
            angles = t[:, None].float() * torch.exp(-torch.arange(64, device=x.device) / 8)
            t = self.time(torch.cat([angles.sin(), angles.cos()], 1))
            x, kept = self.first(x), []
            for residual, smaller, attention in self.down:
                x = residual(x, t)
                kept.append(x)
                x = attention(smaller(x))
            x = self.middle(x, t)
            for larger, residual in self.up:
                x = larger(F.interpolate(x, scale_factor=2, mode="nearest"))
                x = residual(torch.cat([x, kept.pop()], 1), t)
            return self.last(x)

    import copy

    model = Unet().cuda()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for _ in range(3):
        x, t = torch.randn(12, 4, 64, 64).cuda(), torch.randint(0, 1000, (12,)).cuda()
        noise = torch.randn_like(x)
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.mse_loss(model(x + noise, t), noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for a, b in zip(average.parameters(), model.parameters()):
                a.lerp_(b, 0.001)
        loss.item()


@kind
def wgan_gradient_penalty():
    def conv(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 4, 2, 1), nn.InstanceNorm2d(o, affine=True), nn.LeakyReLU(0.2))

    critic = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), conv(64, 128), conv(128, 256), nn.Conv2d(256, 1, 4), nn.Flatten()).cuda()
    maker = nn.Sequential(nn.Linear(64, 256 * 16), nn.Unflatten(1, (256, 4, 4)), nn.ConvTranspose2d(256, 128, 4, 2, 1), nn.BatchNorm2d(128), nn.ReLU(), nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(), nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()).cuda()
    first, second = torch.optim.Adam(critic.parameters(), 1e-4), torch.optim.Adam(maker.parameters(), 1e-4)
    for _ in range(3):
        real = torch.randn(64, 3, 32, 32).cuda()
        fake = maker(torch.randn(64, 64, device="cuda")).detach()
        mixed = torch.rand(64, 1, 1, 1, device="cuda")
        mixed = (mixed * real + (1 - mixed) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        loss = critic(fake).mean() - critic(real).mean() + 10 * (slope.flatten(1).norm(dim=1) - 1).square().mean()
        first.zero_grad()
        loss.backward()
        first.step()
        second.zero_grad()
        (-critic(maker(torch.randn(64, 64, device="cuda"))).mean()).backward()
        second.step()


@kind
def convnext_benchmark_channels_last_bf16():
    import torchvision

    torch.backends.cudnn.benchmark = True
    model = torchvision.models.convnext_tiny(weights=None).cuda().to(memory_format=torch.channels_last)
    train(model, images(24, 3, 224, 224), lambda m, x, y: classify(m, x.to(memory_format=torch.channels_last), y), torch.optim.AdamW(model.parameters()), autocast=torch.bfloat16)


@kind
def vit_accumulation_fused():
    import torchvision

    model = torchvision.models.vit_b_16(weights=None).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(3):
        for _ in range(2):
            x, y = torch.randn(12, 3, 224, 224).cuda(), torch.randint(0, 1000, (12,)).cuda()
            with torch.autocast("cuda", torch.bfloat16):
                loss = F.cross_entropy(model(x), y) / 2
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@kind
def resnet_inference_growing_batch():
    import torchvision

    model = torchvision.models.resnet34(weights=None).cuda().eval()
    with torch.inference_mode():
        for count in (1, 8, 32, 48, 64):
            model(torch.randn(count, 3, 224, 224).cuda()).argmax(1).cpu()


@kind
def segmentation_fcn_amp():
    import torchvision

    model = torchvision.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=19).cuda()
    batches = [(torch.randn(8, 3, 320, 320), torch.randint(0, 19, (8, 320, 320))) for _ in range(3)]
    train(model, batches, lambda m, x, y: F.cross_entropy(m(x)["out"], y), torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), autocast=torch.float16, scaler=torch.amp.GradScaler())


# The ways of running


@kind
def gpt2_compiled():
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=4)).cuda()
    compiled = torch.compile(model)
    train(compiled, tokens(8, 256, 50000), language, torch.optim.AdamW(model.parameters()), autocast=torch.bfloat16)


@kind
def mlp_cuda_graph():
    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 100)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), capturable=True)
    x, y = torch.randn(512, 1024, device="cuda"), torch.randint(0, 100, (512,), device="cuda")

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
        loss = step()
    for _ in range(5):
        graph.replay()
    loss.item()


@kind
def resnet_compiled_reduce_overhead():
    import torchvision

    model = torchvision.models.resnet18(weights=None).cuda()
    train(torch.compile(model, mode="reduce-overhead"), images(32, 3, 128, 128, steps=5), classify, torch.optim.SGD(model.parameters(), 0.1))


@kind
def offload_saved_tensors():
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=4)).cuda()

    def loss_of(m, ids):
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return language(m, ids)

    train(model, tokens(8, 256, 50000), loss_of, torch.optim.AdamW(model.parameters()))


@kind
def optimizer_in_backward():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.ReLU()) for _ in range(8)]).cuda()
    optimizers = {p: torch.optim.Adam([p], foreach=False) for p in model.parameters()}

    def hook(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    for _ in range(3):
        model(torch.randn(256, 2048).cuda()).square().mean().backward()


@kind
def per_sample_gradients():
    from torch.func import functional_call, grad, vmap

    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(32 * 64, 10)).cuda()
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss_of(parameters, x, y):
        return F.cross_entropy(functional_call(model, parameters, (x[None],)), y[None])

    for x, y in images(128, 3, 32, 32):
        each = vmap(grad(loss_of), (None, 0, 0))(parameters, x.cuda(), y.cuda())
        for name, p in parameters.items():
            p.sub_(each[name].mean(0), alpha=0.1)


@kind
def gaussian_process_cholesky():
    x = torch.randn(3000, 8).cuda()
    y = torch.randn(3000, 1).cuda()
    scale = torch.zeros(8, device="cuda", requires_grad=True)
    optimizer = torch.optim.Adam([scale], 0.1)
    for _ in range(3):
        z = x * scale.exp()
        cover = torch.exp(-0.5 * torch.cdist(z, z).square()) + 0.1 * torch.eye(3000, device="cuda")
        root = torch.linalg.cholesky(cover)
        half = torch.linalg.solve_triangular(root, y, upper=False)
        loss = 0.5 * half.square().sum() + root.diagonal().log().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def fourier_operator():
    class Spectral(nn.Module):
        def __init__(self, width=48, modes=16):
            super().__init__()
            self.modes = modes
            self.weight = nn.Parameter(torch.randn(width, width, modes, modes, dtype=torch.cfloat) / width)
            self.straight = nn.Conv2d(width, width, 1)

        def forward(self, x):
            f = torch.fft.rfft2(x)
            out = torch.zeros_like(f)
            m = self.modes
            out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", f[:, :, :m, :m], self.weight)
            return F.gelu(torch.fft.irfft2(out, s=x.shape[-2:]) + self.straight(x))

    model = nn.Sequential(nn.Conv2d(1, 48, 1), *[Spectral() for _ in range(4)], nn.Conv2d(48, 1, 1)).cuda()
    batches = [(torch.randn(16, 1, 128, 128), torch.randn(16, 1, 128, 128)) for _ in range(3)]
    train(model, batches, lambda m, x, y: F.mse_loss(m(x), y), torch.optim.Adam(model.parameters()))
