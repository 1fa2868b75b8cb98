"""Programs that ask whether a decomposition went well, of a matrix that nobody computed."""

SCRIPT = """
import torch
from torch.distributions import MultivariateNormal

factor = torch.eye(6, device="cuda").requires_grad_(True)
optimizer = torch.optim.SGD([factor], 0.01)
data = torch.randn(64, 6).cuda()
for _ in range(3):
    covariance = factor @ factor.T + 0.1 * torch.eye(6, device="cuda")
    loss = -MultivariateNormal(torch.zeros(6, device="cuda"), covariance).log_prob(data).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
many = torch.randn(5, 6, 6).cuda()
lower, info = torch.linalg.cholesky_ex(many @ many.mT)
assert (info == 0).all(), info
"""


def test_a_covariance_is_positive_definite(plimsoll):
    (plimsoll.folder / "normal.py").write_text(SCRIPT)
    ran = plimsoll.predict("normal.py", options=("--gpu", "rtx3090", "--until-exit"))
    assert ran.code == 0, ran
