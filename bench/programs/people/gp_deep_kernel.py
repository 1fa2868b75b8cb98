"""Exact Gaussian process regression with a deep kernel in gpytorch: the whole training set in one kernel matrix, then predictions."""
import gpytorch
import torch

torch.manual_seed(0)
n_train, n_test, dim = 14000, 2000, 32
X = torch.rand(n_train + n_test, dim) * 2 - 1
y = torch.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * torch.cos(5 * X[:, 3:6]).sum(1) + 0.1 * torch.randn(len(X))
y = (y - y[:n_train].mean()) / y[:n_train].std()
train_x, train_y = X[:n_train].cuda(), y[:n_train].cuda()
test_x, test_y = X[n_train:].cuda(), y[n_train:].cuda()


class FeatureExtractor(torch.nn.Sequential):
    def __init__(self):
        super().__init__(
            torch.nn.Linear(dim, 1000), torch.nn.ReLU(),
            torch.nn.Linear(1000, 500), torch.nn.ReLU(),
            torch.nn.Linear(500, 50), torch.nn.ReLU(),
            torch.nn.Linear(50, 4),
        )


class DKLRegression(gpytorch.models.ExactGP):
    def __init__(self, train_x, train_y, likelihood):
        super().__init__(train_x, train_y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=4)) + gpytorch.kernels.ScaleKernel(
            gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=4)
        )
        self.feature_extractor = FeatureExtractor()
        self.scale_to_bounds = gpytorch.utils.grid.ScaleToBounds(-1.0, 1.0)

    def forward(self, x):
        projected = self.scale_to_bounds(self.feature_extractor(x))
        return gpytorch.distributions.MultivariateNormal(self.mean_module(projected), self.covar_module(projected))


likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-3)).cuda()
model = DKLRegression(train_x, train_y, likelihood).cuda()
optimizer = torch.optim.Adam([
    {"params": model.feature_extractor.parameters(), "weight_decay": 1e-4},
    {"params": model.covar_module.parameters()},
    {"params": model.mean_module.parameters()},
    {"params": likelihood.parameters()},
], lr=0.01)
mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

model.train()
likelihood.train()
for i in range(25):
    optimizer.zero_grad()
    output = model(train_x)
    loss = -mll(output, train_y)
    loss.backward()
    optimizer.step()
    if i % 5 == 0:
        print(f"Iter {i + 1}/25 - Loss: {loss.item():.3f} - noise: {likelihood.noise.item():.4f}")

model.eval()
likelihood.eval()
with torch.no_grad(), gpytorch.settings.fast_pred_var():
    predictions = likelihood(model(test_x))
    print("Test MAE: {:.4f}".format(torch.mean(torch.abs(predictions.mean - test_y)).item()))
    print("mean of variances", predictions.variance.mean().item())
