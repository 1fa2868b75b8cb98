"""Half precision and channels-last around every kind of norm and convolution, and generation with beams in between. Written before the
phantom had run any."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import classify, images, kind, tokens, train


def _last(batches, memory_format=torch.channels_last):
    for x, *others in batches:
        yield (x.cuda().to(memory_format=memory_format), *others)


@kind
def unet_of_resnet_channels_last():
    """A ResNet-34 whose stages are looked at by a decoder, bf16 with the channels last."""
    import torchvision

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            it = torchvision.models.resnet34()
            self.stages = nn.ModuleList([nn.Sequential(it.conv1, it.bn1, it.relu), nn.Sequential(it.maxpool, it.layer1), it.layer2, it.layer3, it.layer4])
            pairs = ((512, 256, 256), (256, 128, 128), (128, 64, 64), (64, 64, 32))
            self.up = nn.ModuleList([nn.ConvTranspose2d(a, a // 2, 2, 2) for a, _, _ in pairs])
            self.mix = nn.ModuleList([nn.Sequential(nn.Conv2d(a // 2 + b, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.ReLU()) for a, b, c in pairs])
            self.out = nn.Conv2d(32, 5, 1)

        def forward(self, x):
            kept = []
            for stage in self.stages:
                x = stage(x)
                kept.append(x)
            kept.pop()
            for up, mix in zip(self.up, self.mix):
                x = mix(torch.cat([up(x), kept.pop()], 1))
            return F.interpolate(self.out(x), scale_factor=2, mode="bilinear")

    model = Net().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    data = ((torch.randn(10, 3, 256, 320), torch.randint(0, 5, (10, 256, 320))) for _ in range(3))
    train(model, _last(data), classify, optimizer, autocast=torch.bfloat16)


@kind
def halves_without_a_scaler():
    """fp16 with the channels last and no scaler, as in a benchmark."""
    import torchvision

    model = torchvision.models.resnet18(num_classes=1000).cuda().to(memory_format=torch.channels_last)
    train(model, _last(images(80, 3, 224, 224, classes=1000)), classify, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), autocast=torch.float16)


@kind
def norms_that_are_frozen():
    """Fine-tuning in fp16 with the channels last, norms in evaluation mode, the first stages frozen."""
    import torchvision

    model = torchvision.models.resnet50(num_classes=37).cuda().to(memory_format=torch.channels_last).train()
    for it in (model.conv1, model.bn1, model.layer1):
        it.requires_grad_(False)
    for it in model.modules():
        if isinstance(it, nn.BatchNorm2d):
            it.eval()
            it.requires_grad_(False)
    optimizer = torch.optim.AdamW([it for it in model.parameters() if it.requires_grad], 1e-4)
    for x, y in _last(images(28, 3, 224, 224, classes=37)):
        with torch.autocast("cuda", torch.float16):
            loss = classify(model, x, y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def groups_with_standardized_weights():
    """Big Transfer: convolutions whose weights are standardized, group norms, fp16 with the channels last."""

    class Standardized(nn.Conv2d):
        def forward(self, x):
            w = self.weight
            variance, mean = torch.var_mean(w, dim=(1, 2, 3), keepdim=True, unbiased=False)
            return F.conv2d(x, (w - mean) / torch.sqrt(variance + 1e-10), self.bias, self.stride, self.padding)

    class Block(nn.Module):
        def __init__(self, a, b, stride):
            super().__init__()
            m = b // 4
            self.norms = nn.ModuleList([nn.GroupNorm(32, it) for it in (a, m, m)])
            self.convs = nn.ModuleList([Standardized(a, m, 1, bias=False), Standardized(m, m, 3, stride, 1, bias=False), Standardized(m, b, 1, bias=False)])
            self.short = Standardized(a, b, 1, stride, bias=False) if stride > 1 or a != b else nn.Identity()

        def forward(self, x):
            y = F.relu(self.norms[0](x))
            short = self.short(y)
            for conv, norm in zip(self.convs, (*self.norms[1:], nn.Identity())):
                y = conv(y)
                y = F.relu(norm(y)) if not isinstance(norm, nn.Identity) else y
            return y + short

    sizes = ((64, 256, 1), (256, 256, 1), (256, 512, 2), (512, 512, 1), (512, 1024, 2), (1024, 1024, 1))
    model = nn.Sequential(Standardized(3, 64, 7, 2, 3, bias=False), nn.MaxPool2d(3, 2, 1), *[Block(*it) for it in sizes], nn.GroupNorm(32, 1024), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 100))
    model = model.cuda().to(memory_format=torch.channels_last)
    train(model, _last(images(32, 3, 160, 160, classes=100)), classify, torch.optim.SGD(model.parameters(), 0.003, momentum=0.9), autocast=torch.float16)


@kind
def volumes_channels_last():
    """A U-Net of volumes with instance norms and leaky units, bf16, channels_last_3d, deep supervision."""

    def double(a, b):
        layers = []
        for inside in (a, b):
            layers += [nn.Conv3d(inside, b, 3, padding=1), nn.InstanceNorm3d(b, affine=True), nn.LeakyReLU(0.01, inplace=True)]
        return nn.Sequential(*layers)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList([double(a, b) for a, b in ((2, 24), (24, 48), (48, 96), (96, 192))])
            self.up = nn.ModuleList([nn.ConvTranspose3d(a, b, 2, 2) for a, b in ((192, 96), (96, 48), (48, 24))])
            self.mix = nn.ModuleList([double(2 * b, b) for b in (96, 48, 24)])
            self.heads = nn.ModuleList([nn.Conv3d(b, 4, 1) for b in (96, 48, 24)])

        def forward(self, x):
            kept, told = [], []
            for i, it in enumerate(self.down):
                x = it(F.max_pool3d(x, 2) if i else x)
                kept.append(x)
            kept.pop()
            for up, mix, head in zip(self.up, self.mix, self.heads):
                x = mix(torch.cat([up(x), kept.pop()], 1))
                told.append(head(x))
            return told

    def loss(model, x, y):
        told = model(x)
        return sum(F.cross_entropy(it, y[:, :: y.shape[1] // it.shape[2], :: y.shape[2] // it.shape[3], :: y.shape[3] // it.shape[4]]) for it in told)

    model = Net().cuda().to(memory_format=torch.channels_last_3d)
    data = ((torch.randn(2, 2, 64, 80, 64), torch.randint(0, 4, (2, 64, 80, 64))) for _ in range(3))
    train(model, _last(data, torch.channels_last_3d), loss, torch.optim.SGD(model.parameters(), 0.01, momentum=0.99, nesterov=True), autocast=torch.bfloat16, clip=12)


@kind
def pictures_and_tables_together():
    """A small network of pictures, batch norms of one dimension for a table, embeddings; fp16, then evaluated with larger batches."""
    import torchvision

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = torchvision.models.efficientnet_v2_s(num_classes=256)
            self.told = nn.Sequential(nn.BatchNorm1d(40), nn.Linear(40, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 256))
            self.shops = nn.Embedding(50000, 64)
            self.out = nn.Sequential(nn.Linear(576, 256), nn.SiLU(), nn.Linear(256, 1))

        def forward(self, x, table, shop):
            return self.out(torch.cat([self.seen(x), self.told(table), self.shops(shop)], 1)).squeeze(1)

    model = Net().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def batch(n):
        return torch.randn(n, 3, 128, 128).cuda().to(memory_format=torch.channels_last), torch.randn(n, 40).cuda(), torch.randint(0, 50000, (n,)).cuda(), torch.rand(n).cuda()

    for _ in range(3):
        *it, y = batch(48)
        with torch.autocast("cuda", torch.float16):
            loss = F.huber_loss(model(*it), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad(), torch.autocast("cuda", torch.float16):
        for _ in range(2):
            *it, y = batch(160)
            model(*it).float().cpu()


@kind
def compiled_channels_last():
    """ResNet-50 compiled, bf16, channels last."""
    import torchvision

    model = torchvision.models.resnet50(num_classes=100).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    train(torch.compile(model), _last(images(32, 3, 192, 192, classes=100)), classify, optimizer, autocast=torch.bfloat16)


@kind
def summaries_with_beams():
    """BART trained for two steps, then four beams write a summary."""
    import transformers

    sizes = dict(encoder_layers=3, decoder_layers=3, d_model=512, encoder_ffn_dim=2048, decoder_ffn_dim=2048, encoder_attention_heads=8, decoder_attention_heads=8)
    model = transformers.BartForConditionalGeneration(transformers.BartConfig(**sizes)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-5)
    for (ids,) in tokens(8, 256, 50000, steps=2):
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=ids.cuda(), labels=ids[:, :64].cuda()).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        model.generate(torch.randint(5, 50000, (16, 256)).cuda(), num_beams=4, max_new_tokens=48, min_new_tokens=48, early_stopping=True).cpu()


@kind
def continuations_with_beams():
    """A language model in fp16 goes on with a text by eight beams, three of which are returned."""
    import transformers

    config = transformers.GPT2Config(n_layer=8, n_embd=768, n_head=12)
    model = transformers.GPT2LMHeadModel(config).cuda().half().eval()
    ids = torch.randint(0, 50000, (4, 200)).cuda()
    with torch.inference_mode():
        model.generate(ids, attention_mask=torch.ones_like(ids), num_beams=8, num_return_sequences=3, max_new_tokens=64, min_new_tokens=64, pad_token_id=50256).tolist()


@kind
def encoders_with_padding():
    """torch's own encoder with padding masks, trained in bf16, its fast path in evaluation, an average of weights."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, norm_first=False, activation="gelu")
    model, embed, head = nn.TransformerEncoder(layer, 6).cuda(), nn.Embedding(20000, 512).cuda(), nn.Linear(512, 4).cuda()
    parameters = [*model.parameters(), *embed.parameters(), *head.parameters()]
    optimizer, average = torch.optim.RAdam(parameters, 1e-4), copy.deepcopy(model)
    for n in (180, 240, 210):
        ids, mask = torch.randint(0, 20000, (24, n)).cuda(), (torch.arange(n) >= torch.randint(n // 2, n, (24, 1))).cuda()
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(head(model(embed(ids), src_key_padding_mask=mask).mean(1)), torch.randint(0, 4, (24,)).cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for a, b in zip(average.parameters(), model.parameters()):
                a.lerp_(b, 0.1)
    model.eval()
    with torch.no_grad():
        ids, mask = torch.randint(0, 20000, (48, 300)).cuda(), (torch.arange(300) >= torch.randint(100, 300, (48, 1))).cuda()
        head(model(embed(ids), src_key_padding_mask=mask).mean(1)).argmax(1).cpu()
