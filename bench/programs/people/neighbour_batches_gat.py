"""GATv2 of torch_geometric on neighbourhoods sampled from a large graph; the sampler is by hand on the GPU, a test every epoch."""
import torch
import torch.nn.functional as F
from torch_geometric.nn import GATv2Conv
from torch_geometric.utils import degree

NODES, AVERAGE_DEGREE, FEATURES, CLASSES = 800_000, 20, 128, 47
FANOUTS = [10, 10, 5]
BATCH = 2048


def load_graph():
    src = torch.randint(NODES, (NODES * AVERAGE_DEGREE,), device="cuda")
    dst = (torch.rand(len(src), device="cuda") ** 2 * NODES).long()
    dst, order = dst.sort()
    rowptr = torch.zeros(NODES + 1, dtype=torch.long, device="cuda")
    rowptr[1:] = degree(dst, NODES, dtype=torch.long).cumsum(0)
    return rowptr, src[order]


def sample(seeds, rowptr, col):
    """The nodes that are needed, seeds first, and the edges of each layer, outermost first."""
    nodes, layers = seeds, []
    for fanout in FANOUTS:
        count = rowptr[nodes + 1] - rowptr[nodes]
        pick = (torch.rand(len(nodes), fanout, device=nodes.device) * count[:, None]).long()
        target = torch.arange(len(nodes), device=nodes.device).repeat_interleave(fanout)
        has = (count > 0).repeat_interleave(fanout)
        source = col[(rowptr[nodes][:, None] + pick).flatten().clamp(max=len(col) - 1)]
        source, target = source[has], target[has]
        unique = torch.unique(source)
        fresh = unique[~torch.isin(unique, nodes)]
        extended = torch.cat([nodes, fresh])
        position = torch.empty(NODES, dtype=torch.long, device=nodes.device)
        position[extended] = torch.arange(len(extended), device=nodes.device)
        layers.insert(0, (torch.stack([position[source], target]), len(nodes)))
        nodes = extended
    return nodes, layers


class GAT(torch.nn.Module):
    def __init__(self, hidden=64, heads=4, dropout=0.3):
        super().__init__()
        self.convs = torch.nn.ModuleList([
            GATv2Conv((FEATURES, FEATURES), hidden, heads, dropout=dropout, add_self_loops=False),
            GATv2Conv((hidden * heads, hidden * heads), hidden, heads, dropout=dropout, add_self_loops=False),
            GATv2Conv((hidden * heads, hidden * heads), CLASSES, 1, concat=False, add_self_loops=False),
        ])
        self.skips = torch.nn.ModuleList([torch.nn.Linear(FEATURES, hidden * heads), torch.nn.Linear(hidden * heads, hidden * heads), torch.nn.Linear(hidden * heads, CLASSES)])
        self.dropout = dropout

    def forward(self, x, layers):
        for i, (conv, skip, (edge_index, size)) in enumerate(zip(self.convs, self.skips, layers)):
            target = x[:size]
            x = conv((x, target), edge_index) + skip(target)
            if i < 2:
                x = F.dropout(F.elu(x), self.dropout, self.training)
        return x


torch.manual_seed(12345)
rowptr, col = load_graph()
x = torch.randn(NODES, FEATURES, device="cuda")
y = torch.randint(CLASSES, (NODES,), device="cuda")
shuffled = torch.randperm(NODES, device="cuda")
train_idx, test_idx = shuffled[: BATCH * 20], shuffled[-BATCH * 4 :]
model = GAT().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.002, weight_decay=5e-4)

for epoch in range(1, 4):
    model.train()
    total = 0.0
    for seeds in train_idx[torch.randperm(len(train_idx), device="cuda")].split(BATCH):
        nodes, layers = sample(seeds, rowptr, col)
        loss = F.cross_entropy(model(x[nodes], layers), y[seeds])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(seeds)
    model.eval()
    correct = 0
    with torch.no_grad():
        for seeds in test_idx.split(BATCH):
            nodes, layers = sample(seeds, rowptr, col)
            correct += (model(x[nodes], layers).argmax(-1) == y[seeds]).sum().item()
    print(f"Epoch {epoch:02d}, Loss: {total / len(train_idx):.4f}, Test: {correct / len(test_idx):.4f}")
