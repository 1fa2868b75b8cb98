"""Architectures beside the usual ones, at odd batches and in mixed precisions: written before the phantom had run any of
them, and measured on the H200 once.

Vision (ConvNeXt, Swin v2, MaxViT, EfficientFormer, RegNet, ShuffleNet), volumes with holes, deformable and modulated
convolutions, sound (Conformer, HiFi-GAN, Demucs, a codec), two transformers through CUDA graphs, and three that pad.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import classify, images, kind, language, tokens, train


# Vision


@kind
def convnext_small_odd_channels_last_bf16():
    import torchvision

    model = torchvision.models.convnext_small(num_classes=37).cuda().to(memory_format=torch.channels_last)
    batches = ((x.contiguous(memory_format=torch.channels_last), y) for x, y in images(27, 3, 208, 208, classes=37))
    train(model, batches, classify, torch.optim.AdamW(model.parameters(), fused=True), autocast=torch.bfloat16, clip=5.0)


@kind
def swin_v2_odd_fp16():
    import torchvision

    model = torchvision.models.swin_v2_t(num_classes=101).cuda()
    train(model, images(13, 3, 256, 256, classes=101), classify, torch.optim.AdamW(model.parameters()), autocast=torch.float16, scaler=torch.amp.GradScaler(init_scale=16.0))


@kind
def maxvit_odd_fp32():
    import torchvision

    model = torchvision.models.maxvit_t(num_classes=20).cuda()
    train(model, images(9, 3, 224, 224, classes=20), classify, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, nesterov=True))


@kind
def efficientformer_v2_bf16():
    import timm

    model = timm.create_model("efficientformerv2_s1", pretrained=False, num_classes=50).cuda().to(memory_format=torch.channels_last)
    batches = ((x.contiguous(memory_format=torch.channels_last), y) for x, y in images(31, 3, 224, 224, classes=50))
    train(model, batches, lambda m, x, y: F.cross_entropy(_mean(m(x)), y), torch.optim.AdamW(model.parameters()), autocast=torch.bfloat16)


def _mean(outputs):
    """Of the two heads of a model that is distilled."""
    return sum(outputs) / len(outputs) if isinstance(outputs, tuple) else outputs


@kind
def regnet_y_odd_fp32():
    import torchvision

    model = torchvision.models.regnet_y_1_6gf(num_classes=75).cuda()
    train(model, images(51, 3, 176, 176, classes=75), classify, torch.optim.RMSprop(model.parameters(), 1e-3, momentum=0.9))


@kind
def regnet_x_half_channels_last():
    """The whole model in fp16, as in inference; a last batch that is not full."""
    import torchvision

    model = torchvision.models.regnet_x_3_2gf().cuda().half().to(memory_format=torch.channels_last).eval()
    with torch.inference_mode():
        for count in (37, 37, 37, 11):
            x = torch.randn(count, 3, 288, 288).cuda().half().contiguous(memory_format=torch.channels_last)
            model(x).softmax(1).topk(5).indices.cpu()


@kind
def shufflenet_ema_odd_bf16():
    import torchvision

    model = torchvision.models.shufflenet_v2_x1_5(num_classes=12).cuda()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    for step in images(77, 3, 160, 160, classes=12, steps=4):
        train(model, [step], classify, optimizer, autocast=torch.bfloat16)
        average.update_parameters(model)


class Down3(nn.Module):
    def __init__(self, before, after, stride=1):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(before, after, 3, stride=stride, padding=1, bias=False), nn.InstanceNorm3d(after, affine=True), nn.LeakyReLU(0.01, inplace=True),
            nn.Conv3d(after, after, 3, padding=1, bias=False), nn.InstanceNorm3d(after, affine=True), nn.LeakyReLU(0.01, inplace=True),
        )

    def forward(self, x):
        return self.layers(x)


class UNet3(nn.Module):
    """As nnU-Net builds it: strides in convolutions, transposed ones upwards, losses at every scale."""

    def __init__(self, widths=(24, 48, 96, 192), classes=5):
        super().__init__()
        self.down = nn.ModuleList(Down3(a, b, 2 if i else 1) for i, (a, b) in enumerate(zip((1, *widths), widths)))
        self.up = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, stride=2, bias=False) for a, b in zip(widths, widths[1:]))
        self.join = nn.ModuleList(Down3(2 * a, a) for a in widths[:-1])
        self.heads = nn.ModuleList(nn.Conv3d(a, classes, 1) for a in widths[:-1])

    def forward(self, x):
        seen = []
        for layer in self.down:
            x = layer(x)
            seen.append(x)
        outputs = []
        for i in reversed(range(len(self.up))):
            x = self.join[i](torch.cat([self.up[i](x), seen[i]], 1))
            outputs.append(self.heads[i](x))
        return outputs[::-1]


@kind
def nn_unet_volumes_fp16():
    model = UNet3().cuda()
    batches = ((torch.randn(2, 1, 56, 96, 72), torch.randint(0, 5, (2, 56, 96, 72))) for _ in range(3))

    def loss_of(model, x, y):
        total = 0.0
        for i, logits in enumerate(model(x)):
            small = y[:, :: 2**i, :: 2**i, :: 2**i]
            chance = logits.softmax(1)
            wanted = torch.zeros_like(chance).scatter_(1, small[:, None], 1)
            dice = 2 * (chance * wanted).sum((2, 3, 4)) / (chance + wanted).sum((2, 3, 4)).clamp_min(1e-5)
            total = total + (F.cross_entropy(logits, small) - dice.mean()) / 2**i
        return total

    train(model, batches, loss_of, torch.optim.SGD(model.parameters(), 0.01, momentum=0.99, nesterov=True), autocast=torch.float16, clip=12.0, scaler=torch.amp.GradScaler(init_scale=16.0))


class Deformed(nn.Module):
    """A residual block whose second convolution looks where it wants, and weighs what it sees."""

    def __init__(self, width, groups):
        super().__init__()
        from torchvision.ops import DeformConv2d

        self.first, self.second = nn.Conv2d(width, width, 3, padding=1, bias=False), DeformConv2d(width, width, 3, padding=1, groups=groups, bias=False)
        self.where = nn.Conv2d(width, 3 * groups * 9, 3, padding=1)
        self.norms, self.groups = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2)), groups
        nn.init.zeros_(self.where.weight)

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)))
        offsets, weights = self.where(y).split([2 * self.groups * 9, self.groups * 9], 1)
        return F.relu(x + self.norms[1](self.second(y, offsets, weights.sigmoid())))


@kind
def deformable_residual_fp32():
    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, stride=2, padding=3), nn.BatchNorm2d(64), nn.ReLU(), Deformed(64, 1), nn.Conv2d(64, 128, 3, stride=2, padding=1), Deformed(128, 2), nn.Conv2d(128, 256, 3, stride=2, padding=1), Deformed(256, 4),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10),
    ).cuda()
    train(model, images(7, 3, 200, 200), classify, torch.optim.Adam(model.parameters()))


class Modulated(nn.Module):
    """StyleGAN2: each picture has its own weights, so a batch is one convolution of many groups."""

    def __init__(self, before, after, style, up=False):
        super().__init__()
        self.weight, self.bias, self.style, self.up = nn.Parameter(torch.randn(after, before, 3, 3)), nn.Parameter(torch.zeros(after)), nn.Linear(style, before), up
        self.register_buffer("blur", (torch.tensor([1.0, 3.0, 3.0, 1.0])[:, None] * torch.tensor([1.0, 3.0, 3.0, 1.0]) / 64)[None, None])
        self.strength = nn.Parameter(torch.zeros(1))

    def forward(self, x, w):
        b, c, h, v = x.shape
        weight = self.weight[None] * (self.style(w) + 1)[:, None, :, None, None]
        weight = weight * (weight.square().sum((2, 3, 4), keepdim=True) + 1e-8).rsqrt()
        x = x.reshape(1, b * c, h, v)
        if self.up:
            x = F.conv_transpose2d(x, weight.transpose(1, 2).reshape(b * c, -1, 3, 3), stride=2, groups=b)
            x = F.conv2d(x.view(b, -1, *x.shape[2:]), self.blur.expand(self.bias.numel(), 1, 4, 4) * 4, padding=1, groups=self.bias.numel())
        else:
            x = F.conv2d(x, weight.reshape(-1, c, 3, 3), padding=1, groups=b).view(b, -1, h, v)
        x = x + torch.randn(b, 1, *x.shape[2:], device=x.device) * self.strength
        return F.leaky_relu(x + self.bias[:, None, None], 0.2)


class Painter(nn.Module):
    def __init__(self, widths=(256, 256, 128, 64), style=128):
        super().__init__()
        self.start = nn.Parameter(torch.randn(1, widths[0], 8, 8))
        self.mapping = nn.Sequential(*(it for _ in range(4) for it in (nn.Linear(style, style), nn.LeakyReLU(0.2))))
        self.layers = nn.ModuleList()
        for a, b in zip(widths, widths[1:]):
            self.layers += [Modulated(a, b, style, up=True), Modulated(b, b, style)]
        self.color = nn.Conv2d(widths[-1], 3, 1)

    def forward(self, z):
        w = self.mapping(F.normalize(z))
        x = self.start.expand(len(z), -1, -1, -1)
        for layer in self.layers:
            x = layer(x, w)
        return self.color(x)


class Critic(nn.Module):
    def __init__(self, widths=(64, 128, 256, 256)):
        super().__init__()
        self.first = nn.Conv2d(3, widths[0], 1)
        self.layers = nn.ModuleList(nn.ModuleList([nn.Conv2d(a, a, 3, padding=1), nn.Conv2d(a, b, 3, stride=2, padding=1), nn.Conv2d(a, b, 1, stride=2, bias=False)]) for a, b in zip(widths, widths[1:]))
        self.last = nn.Sequential(nn.Conv2d(widths[-1] + 1, 256, 3, padding=1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(256 * 64, 1))

    def forward(self, x):
        x = F.leaky_relu(self.first(x), 0.2)
        for first, second, skip in self.layers:
            x = (F.leaky_relu(second(F.leaky_relu(first(x), 0.2)), 0.2) + skip(x)) / 2**0.5
        spread = x.view(3, -1, *x.shape[1:]).std(0, correction=0).mean((1, 2, 3), keepdim=True).repeat(3, 1, *x.shape[2:])
        return self.last(torch.cat([x, spread], 1))


@kind
def style_gan_modulated_groups():
    painter, critic = Painter().cuda(), Critic().cuda()
    paints, judges = (torch.optim.Adam(it.parameters(), 2e-3, betas=(0.0, 0.99)) for it in (painter, critic))
    for step, (real, _) in enumerate(images(15, 3, 64, 64, steps=5)):
        real = real.cuda()
        fake = painter(torch.randn(15, 128, device="cuda")).detach()
        judges.zero_grad()
        (F.softplus(critic(fake)) + F.softplus(-critic(real))).mean().backward()
        judges.step()
        if step % 2 == 0:
            judges.zero_grad()
            real.requires_grad_(True)
            slope = torch.autograd.grad(critic(real).sum(), real, create_graph=True)[0]
            (slope.square().sum((1, 2, 3)).mean() * 5).backward()
            judges.step()
        paints.zero_grad()
        F.softplus(-critic(painter(torch.randn(15, 128, device="cuda")))).mean().backward()
        paints.step()


# Sound


class Conform(nn.Module):
    def __init__(self, width, heads, kernel=31):
        super().__init__()
        self.before, self.after = (nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Dropout(0.1), nn.Linear(4 * width, width), nn.Dropout(0.1)) for _ in range(2))
        self.attend, self.norm = nn.MultiheadAttention(width, heads, dropout=0.1, batch_first=True), nn.LayerNorm(width)
        self.ahead, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.conv = nn.Sequential(
            nn.Conv1d(width, 2 * width, 1), nn.GLU(1), nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width), nn.BatchNorm1d(width), nn.SiLU(), nn.Conv1d(width, width, 1), nn.Dropout(0.1)
        )

    def forward(self, x, padded):
        x = x + self.before(x) / 2
        y = self.norm(x)
        x = x + self.attend(y, y, y, key_padding_mask=padded, need_weights=False)[0]
        x = x + self.conv(self.ahead(x).transpose(1, 2)).transpose(1, 2)
        return self.last(x + self.after(x) / 2)


class Conformer(nn.Module):
    def __init__(self, width=256, layers=6, words=128):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, stride=2), nn.ReLU(), nn.Conv2d(width, width, 3, stride=2), nn.ReLU())
        self.proj, self.head = nn.Linear(width * 19, width), nn.Linear(width, words)
        self.layers = nn.ModuleList(Conform(width, 4) for _ in range(layers))

    def forward(self, mel, lengths):
        x = self.stem(mel[:, None]).transpose(1, 2).flatten(2)
        lengths = ((lengths - 1) // 2 - 1) // 2
        padded = torch.arange(x.shape[1], device=x.device)[None] >= lengths[:, None]
        x = self.proj(x)
        for layer in self.layers:
            x = layer(x, padded)
        return self.head(x).log_softmax(-1), lengths


@kind
def conformer_ctc_bf16():
    model = Conformer().cuda()
    generator = torch.Generator().manual_seed(3)

    def batches():
        for _ in range(4):
            lengths = torch.randint(300, 701, (11,), generator=generator)
            yield torch.randn(11, int(lengths.max()), 80), lengths, torch.randint(1, 128, (11, 40)), torch.randint(10, 41, (11,))

    def loss_of(model, mel, lengths, words, counts):
        chances, frames = model(mel, lengths)
        return F.ctc_loss(chances.float().transpose(0, 1), words, frames, counts, zero_infinity=True)

    train(model, batches(), loss_of, torch.optim.AdamW(model.parameters(), 1e-3), autocast=torch.bfloat16, clip=1.0)


class Voice(nn.Module):
    """HiFi-GAN's generator: transposed convolutions, and between them dilated ones of three kernels, summed."""

    def __init__(self, width=256, rates=((8, 16), (8, 16), (2, 4), (2, 4))):
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.first, self.ups, self.blocks = norm(nn.Conv1d(80, width, 7, padding=3)), nn.ModuleList(), nn.ModuleList()
        for i, (rate, kernel) in enumerate(rates):
            after = width // 2 ** (i + 1)
            self.ups.append(norm(nn.ConvTranspose1d(width // 2**i, after, kernel, rate, padding=(kernel - rate) // 2)))
            self.blocks.append(nn.ModuleList(nn.ModuleList(norm(nn.Conv1d(after, after, k, dilation=d, padding=d * (k - 1) // 2)) for d in (1, 3, 5)) for k in (3, 7, 11)))
        self.last = norm(nn.Conv1d(width // 2 ** len(rates), 1, 7, padding=3))

    def forward(self, x):
        x = self.first(x)
        for up, blocks in zip(self.ups, self.blocks):
            x = up(F.leaky_relu(x, 0.1))
            total = 0
            for block in blocks:
                y = x
                for conv in block:
                    y = y + conv(F.leaky_relu(y, 0.1))
                total = total + y
            x = total / len(blocks)
        return self.last(F.leaky_relu(x)).tanh()


class Period(nn.Module):
    def __init__(self, period):
        super().__init__()
        norm, self.period = nn.utils.parametrizations.weight_norm, period
        widths = (1, 32, 128, 256, 512)
        self.layers = nn.ModuleList(norm(nn.Conv2d(a, b, (5, 1), (3, 1), padding=(2, 0))) for a, b in zip(widths, widths[1:]))
        self.last = norm(nn.Conv2d(512, 1, (3, 1), padding=(1, 0)))

    def forward(self, x):
        x = F.pad(x, (0, -x.shape[-1] % self.period), "reflect")
        x, seen = x.view(*x.shape[:2], -1, self.period), []
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.1)
            seen.append(x)
        return self.last(x).flatten(1), seen


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        plan = ((1, 128, 15, 1, 1), (128, 128, 41, 2, 4), (128, 256, 41, 2, 16), (256, 512, 41, 4, 16), (512, 512, 5, 1, 1))
        self.layers = nn.ModuleList(norm(nn.Conv1d(a, b, k, s, groups=g, padding=k // 2)) for a, b, k, s, g in plan)
        self.last = norm(nn.Conv1d(512, 1, 3, padding=1))

    def forward(self, x):
        seen = []
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.1)
            seen.append(x)
        return self.last(x).flatten(1), seen


@kind
def hifi_gan_fp32():
    voice = Voice().cuda()
    critics = nn.ModuleList([*(Period(it) for it in (2, 3, 5, 7, 11)), Scale()]).cuda()
    speaks, judges = (torch.optim.AdamW(it.parameters(), 2e-4, betas=(0.8, 0.99)) for it in (voice, critics))
    for _ in range(3):
        mel, real = torch.randn(13, 80, 32).cuda(), torch.randn(13, 1, 8192).cuda()
        fake = voice(mel)
        judges.zero_grad()
        sum(((1 - it(real)[0]) ** 2).mean() + (it(fake.detach())[0] ** 2).mean() for it in critics).backward()
        judges.step()
        speaks.zero_grad()
        loss = 45 * F.l1_loss(spectrum(fake), spectrum(real))
        for critic in critics:
            (_, wanted), (said, got) = critic(real), critic(fake)
            loss = loss + ((1 - said) ** 2).mean() + 2 * sum(F.l1_loss(a, b.detach()) for a, b in zip(got, wanted))
        loss.backward()
        speaks.step()


def spectrum(x):
    return torch.stft(x.squeeze(1), 1024, 256, window=torch.hann_window(1024, device=x.device), return_complex=True).abs().clamp_min(1e-5).log()


@kind
def demucs_waves_fp16():
    """Strided convolutions, gated; two directions of LSTM in the middle; transposed ones back."""
    widths = (2, 48, 96, 192, 384)

    class Waves(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList(nn.Sequential(nn.Conv1d(a, b, 8, 4), nn.ReLU(), nn.Conv1d(b, 2 * b, 1), nn.GLU(1)) for a, b in zip(widths, widths[1:]))
            self.middle, self.back = nn.LSTM(384, 384, 2, bidirectional=True, batch_first=True), nn.Linear(768, 384)
            self.up = nn.ModuleList(nn.Sequential(nn.Conv1d(b, 2 * b, 3, padding=1), nn.GLU(1), nn.ConvTranspose1d(b, a * (4 if a == 2 else 1), 8, 4), nn.Identity() if a == 2 else nn.ReLU()) for a, b in zip(widths, widths[1:]))

        def forward(self, x):
            seen, length = [], x.shape[-1]
            for layer in self.down:
                x = layer(x)
                seen.append(x)
            x = self.back(self.middle(x.transpose(1, 2))[0]).transpose(1, 2)
            for i in reversed(range(len(self.up))):
                x = self.up[i](x + seen[i][..., : x.shape[-1]])
            return x.unflatten(1, (4, 2)), length

    def loss_of(model, mix, parts):
        got, _ = model(mix)
        return F.l1_loss(got, parts[..., : got.shape[-1]])

    model = Waves().cuda()
    batches = ((torch.randn(5, 2, 4 * 44100 + 340), torch.randn(5, 4, 2, 4 * 44100 + 340)) for _ in range(3))
    train(model, batches, loss_of, torch.optim.Adam(model.parameters(), 3e-4), autocast=torch.float16, scaler=torch.amp.GradScaler(init_scale=64.0))


# Transformers


@kind
def bert_compiled_with_graphs():
    import transformers

    config = transformers.BertConfig(hidden_size=384, num_hidden_layers=5, num_attention_heads=6, intermediate_size=1536, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = torch.compile(transformers.BertForMaskedLM(config).cuda(), mode="reduce-overhead")
    train(model, tokens(6, 192, 30000, steps=5), language, torch.optim.AdamW(model.parameters(), foreach=True), autocast=torch.bfloat16)


@kind
def vit_compiled_with_graphs():
    import torchvision

    model = torch.compile(torchvision.models.vit_b_32(num_classes=100).cuda(), mode="reduce-overhead")
    train(model, images(19, 3, 224, 224, classes=100, steps=5), classify, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))


@kind
def bart_summaries_fp16():
    import transformers

    config = transformers.BartConfig(d_model=512, encoder_layers=4, decoder_layers=4, encoder_ffn_dim=2048, decoder_ffn_dim=2048, encoder_attention_heads=8, decoder_attention_heads=8, vocab_size=20000)
    model = transformers.BartForConditionalGeneration(config).cuda()

    def batches():
        for step in range(4):
            ids = torch.randint(5, 20000, (9, 300 - 31 * step))
            mask = torch.ones_like(ids)
            for row, short in enumerate(range(0, 90, 10)):
                mask[row, ids.shape[1] - short :] = 0
            yield ids, mask, torch.randint(5, 20000, (9, 60 + 7 * step))

    train(model, batches(), lambda m, ids, mask, labels: m(input_ids=ids, attention_mask=mask, labels=labels).loss, torch.optim.AdamW(model.parameters(), 1e-4), autocast=torch.float16, scaler=torch.amp.GradScaler(init_scale=16.0))


@kind
def gemma_sliding_windows_bf16():
    import transformers

    config = transformers.Gemma3TextConfig(hidden_size=640, intermediate_size=2560, num_hidden_layers=7, num_attention_heads=4, num_key_value_heads=1, head_dim=160, vocab_size=50000, sliding_window=256)
    model = transformers.Gemma3ForCausalLM(config).cuda().to(torch.bfloat16)
    model.gradient_checkpointing_enable()
    train(model, tokens(3, 1111, 50000, steps=3), language, torch.optim.AdamW(model.parameters(), 1e-4), clip=1.0)


@kind
def neox_groups_of_rates_fp32():
    import transformers

    config = transformers.GPTNeoXConfig(hidden_size=512, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=8, vocab_size=24000, max_position_embeddings=1024)
    model = transformers.GPTNeoXForCausalLM(config).cuda()
    plain = [it for it in model.parameters() if it.ndim < 2]
    groups = [{"params": [it for it in model.parameters() if it.ndim >= 2], "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.NAdam(groups, 1e-4)
    for count, length in ((5, 510), (5, 333), (7, 256), (5, 510)):
        train(model, tokens(count, length, 24000, steps=1), language, optimizer, clip=1.0)
    model.eval()
    with torch.no_grad():
        for length in (200, 900):
            model(input_ids=torch.randint(0, 24000, (3, length)).cuda()).logits.argmax(-1).cpu()
