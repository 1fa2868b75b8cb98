"""VQ-VAE on pictures of 128: a codebook kept by exponential averages, straight-through gradients, dead codes put back, perplexity."""
import torch
from torch import nn, optim
from torch.nn import functional as F


class VectorQuantizerEMA(nn.Module):
    def __init__(self, num_embeddings, embedding_dim, commitment_cost=0.25, decay=0.99, epsilon=1e-5):
        super().__init__()
        self._num_embeddings, self._embedding_dim = num_embeddings, embedding_dim
        self._commitment_cost, self._decay, self._epsilon = commitment_cost, decay, epsilon
        weight = torch.randn(num_embeddings, embedding_dim)
        self.register_buffer("_embedding", weight)
        self.register_buffer("_ema_cluster_size", torch.zeros(num_embeddings))
        self.register_buffer("_ema_w", weight.clone())

    def forward(self, inputs):
        inputs = inputs.permute(0, 2, 3, 1).contiguous()
        flat_input = inputs.view(-1, self._embedding_dim)
        distances = (
            torch.sum(flat_input**2, dim=1, keepdim=True)
            + torch.sum(self._embedding**2, dim=1)
            - 2 * torch.matmul(flat_input, self._embedding.t())
        )
        encoding_indices = torch.argmin(distances, dim=1).unsqueeze(1)
        encodings = torch.zeros(encoding_indices.shape[0], self._num_embeddings, device=inputs.device)
        encodings.scatter_(1, encoding_indices, 1)
        quantized = torch.matmul(encodings, self._embedding).view(inputs.shape)

        if self.training:
            with torch.no_grad():
                self._ema_cluster_size.mul_(self._decay).add_(encodings.sum(0), alpha=1 - self._decay)
                n = self._ema_cluster_size.sum()
                size = (self._ema_cluster_size + self._epsilon) / (n + self._num_embeddings * self._epsilon) * n
                dw = torch.matmul(encodings.t(), flat_input)
                self._ema_w.mul_(self._decay).add_(dw, alpha=1 - self._decay)
                self._embedding.copy_(self._ema_w / size.unsqueeze(1))

        e_latent_loss = F.mse_loss(quantized.detach(), inputs)
        loss = self._commitment_cost * e_latent_loss
        quantized = inputs + (quantized - inputs).detach()
        avg_probs = torch.mean(encodings, dim=0)
        perplexity = torch.exp(-torch.sum(avg_probs * torch.log(avg_probs + 1e-10)))
        return loss, quantized.permute(0, 3, 1, 2).contiguous(), perplexity

    @torch.no_grad()
    def restart_dead_codes(self, latents, threshold=0.01):
        flat = latents.permute(0, 2, 3, 1).reshape(-1, self._embedding_dim)
        dead = self._ema_cluster_size < threshold
        picked = flat[torch.randint(len(flat), (int(dead.sum()),), device=flat.device)]
        self._embedding[dead] = picked
        self._ema_w[dead] = picked
        self._ema_cluster_size[dead] = 1.0
        return int(dead.sum())


class Residual(nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self._block = nn.Sequential(
            nn.GroupNorm(32, channels), nn.SiLU(), nn.Conv2d(channels, hidden, 3, padding=1),
            nn.GroupNorm(32, hidden), nn.SiLU(), nn.Conv2d(hidden, channels, 1),
        )

    def forward(self, x):
        return x + self._block(x)


class Model(nn.Module):
    def __init__(self, hidden=256, residual_hidden=128, residual_layers=4, embedding_dim=64, num_embeddings=8192):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, hidden // 2, 4, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(hidden // 2, hidden, 4, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(hidden, hidden, 3, padding=1),
            *[Residual(hidden, residual_hidden) for _ in range(residual_layers)],
            nn.Conv2d(hidden, embedding_dim, 1),
        )
        self.vq = VectorQuantizerEMA(num_embeddings, embedding_dim)
        self.decoder = nn.Sequential(
            nn.Conv2d(embedding_dim, hidden, 3, padding=1),
            *[Residual(hidden, residual_hidden) for _ in range(residual_layers)],
            nn.ConvTranspose2d(hidden, hidden // 2, 4, stride=2, padding=1), nn.ReLU(),
            nn.ConvTranspose2d(hidden // 2, 3, 4, stride=2, padding=1),
        )

    def forward(self, x):
        loss, quantized, perplexity = self.vq(self.encoder(x))
        return loss, self.decoder(quantized), perplexity


batch_size = 64
num_training_updates = 60
device = torch.device("cuda")

torch.manual_seed(0)
training_data = torch.rand(512, 3, 128, 128)
data_variance = training_data.var().item()
loader = torch.utils.data.DataLoader(training_data, batch_size=batch_size, shuffle=True, pin_memory=True)
model = Model().to(device)
optimizer = optim.Adam(model.parameters(), lr=2e-4, amsgrad=True)

model.train()
errors, perplexities, update = [], [], 0
while update < num_training_updates:
    for data in loader:
        data = data.to(device) - 0.5
        optimizer.zero_grad()
        vq_loss, data_recon, perplexity = model(data)
        recon_error = F.mse_loss(data_recon, data) / data_variance
        loss = recon_error + vq_loss
        loss.backward()
        optimizer.step()
        errors.append(recon_error.item())
        perplexities.append(perplexity.item())
        update += 1
        if update % 20 == 0:
            with torch.no_grad():
                restarted = model.vq.restart_dead_codes(model.encoder(data))
            print("%d updates  recon_error %.3f  perplexity %.1f  restarted %d" % (update, sum(errors[-20:]) / 20, sum(perplexities[-20:]) / 20, restarted))
        if update == num_training_updates:
            break
