"""Programs that make, copy or replace a model while they train, none of which has a leak. Usage: models.py NAME

All were written before any of them was measured.
"""

import copy
import io
import sys

LEAKS = []
CLEAN = ["average-by-deepcopy", "average-renewed-each-epoch", "reloaded-from-a-checkpoint", "best-model-loaded-for-the-test", "stages-that-grow",
         "experts-that-are-added", "born-again", "boosting", "target-network", "actor-and-learners", "trainer-with-everything",
         "folds-let-go", "pruned-and-rebuilt", "warm-up-of-a-copy"]


def batches(torch, n, *shape):
    for _ in range(n):
        yield torch.randn(*shape, device="cuda")


def step(opt, loss):
    opt.zero_grad()
    loss.backward()
    opt.step()


def build(nn, width=1536, out=256):
    return nn.Sequential(nn.Linear(256, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, out))


def average_by_deepcopy(torch, F, nn):
    class Average:
        def __init__(self, model):
            self.model = copy.deepcopy(model).eval().requires_grad_(False)

        def update(self, model):
            with torch.no_grad():
                for old, new in zip(self.model.parameters(), model.parameters(), strict=True):
                    old.lerp_(new, 0.01)

    model = build(nn).cuda()
    opt = torch.optim.AdamW(model.parameters())
    average = Average(model)
    for x in batches(torch, 12, 128, 256):
        step(opt, (model(x) - x).square().mean())
        average.update(model)


def average_renewed_each_epoch(torch, F, nn):
    model = build(nn).cuda()
    opt = torch.optim.AdamW(model.parameters())
    average = None
    for _ in range(5):
        average = copy.deepcopy(model)
        for x in batches(torch, 4, 128, 256):
            with torch.no_grad():
                wanted = average(x)
            step(opt, (model(x) - wanted - x).square().mean())


def reloaded_from_a_checkpoint(torch, F, nn):
    def made():
        return build(nn).cuda()

    model = made()
    opt = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        for x in batches(torch, 4, 128, 256):
            step(opt, (model(x) - x).square().mean())
        file = io.BytesIO()
        torch.save([model.state_dict(), opt.state_dict()], file)
        file.seek(0)
        weights, states = torch.load(file, map_location="cpu")
        del model, opt
        model = made()
        model.load_state_dict(weights)
        opt = torch.optim.AdamW(model.parameters())
        opt.load_state_dict(states)


def best_model_loaded_for_the_test(torch, F, nn):
    model = build(nn).cuda()
    opt = torch.optim.AdamW(model.parameters())
    best = None
    for n, x in enumerate(batches(torch, 12, 128, 256)):
        step(opt, (model(x) - x).square().mean())
        if n % 4 == 3:
            best = {name: it.cpu() for name, it in model.state_dict().items()}
    tested = build(nn)
    tested.load_state_dict(best)
    tested = tested.cuda().eval()
    with torch.no_grad():
        for x in batches(torch, 4, 128, 256):
            tested(x)


def stages_that_grow(torch, F, nn):
    class Grows(nn.Module):
        def __init__(self):
            super().__init__()
            self.stages = nn.ModuleList()

        def grow(self):
            stage = build(nn).cuda()
            self.stages.append(stage)
            return stage

        def forward(self, x):
            for it in self.stages:
                x = x + it(x)
            return x

    model = Grows()
    opt = torch.optim.AdamW(model.grow().parameters())
    for n, x in enumerate(batches(torch, 24, 128, 256)):
        if n % 6 == 5:
            opt.add_param_group({"params": model.grow().parameters()})
        step(opt, (model(x) - x).square().mean())


def experts_that_are_added(torch, F, nn):
    experts, optimizers = [], []
    for _ in range(4):
        expert = build(nn).cuda()
        experts.append(expert)
        optimizers.append(torch.optim.Adam(expert.parameters()))
        for x in batches(torch, 5, 128, 256):
            loss = torch.stack([it(x) for it in experts]).mean(0).square().mean()
            for it in optimizers:
                it.zero_grad()
            loss.backward()
            for it in optimizers:
                it.step()


def born_again(torch, F, nn):
    teacher = None
    for _ in range(4):
        student = build(nn).cuda()
        opt = torch.optim.AdamW(student.parameters())
        for x in batches(torch, 5, 128, 256):
            wanted = x
            if teacher is not None:
                with torch.no_grad():
                    wanted = teacher(x)
            step(opt, (student(x) - wanted).square().mean())
        teacher = student.eval()
        teacher.zero_grad()


def boosting(torch, F, nn):
    learners = []
    for _ in range(5):
        weak = build(nn, 512).cuda()
        opt = torch.optim.SGD(weak.parameters(), 0.1)
        for x in batches(torch, 5, 128, 256):
            with torch.no_grad():
                so_far = sum((0.1 * it(x) for it in learners), torch.zeros_like(x))
            step(opt, (weak(x) + so_far - x).square().mean())
        weak.zero_grad()
        learners.append(weak)


def target_network(torch, F, nn):
    online = build(nn).cuda()
    target = build(nn).cuda()
    opt = torch.optim.Adam(online.parameters())
    for n, x in enumerate(batches(torch, 16, 128, 256)):
        if n % 4 == 0:
            target = copy.deepcopy(online).requires_grad_(False)
        step(opt, (online(x) - target(x)).square().mean())


def actor_and_learners(torch, F, nn):
    def network():
        return build(nn).cuda()

    critics = [network() for _ in range(2)]
    opt = torch.optim.Adam([it for one in critics for it in one.parameters()])
    for x in batches(torch, 5, 128, 256):
        step(opt, sum(it(x).square().mean() for it in critics))
    actor = network()
    of_actor = torch.optim.Adam(actor.parameters())
    for x in batches(torch, 10, 128, 256):
        step(opt, sum(it(actor(x).detach()).square().mean() for it in critics))
        step(of_actor, -sum(it(actor(x)).mean() for it in critics))


def trainer_with_everything(torch, F, nn):
    """One line of the user's does it all: a warm-up that finds the batch, the training, the average, a last test of what was written."""

    class Trainer:
        def fit(self):
            self.warm_up()
            self.model = self.made()
            self.average = copy.deepcopy(self.model).eval()
            self.opt = torch.optim.AdamW(self.model.parameters())
            for x in batches(torch, 8, 128, 256):
                step(self.opt, (self.model(x) - x).square().mean())
            self.test()

        def made(self):
            return build(nn).cuda()

        def warm_up(self):
            model = self.made()
            for x in batches(torch, 2, 64, 256):
                model(x).square().mean().backward()

        def test(self):
            file = io.BytesIO()
            torch.save(self.average.state_dict(), file)
            file.seek(0)
            tested = build(nn)
            tested.load_state_dict(torch.load(file, map_location="cpu"))
            tested = tested.cuda().eval()
            with torch.no_grad():
                for x in batches(torch, 3, 128, 256):
                    tested(x)

    Trainer().fit()


def folds_let_go(torch, F, nn):
    scores = []
    for _ in range(5):
        model = build(nn).cuda()
        opt = torch.optim.AdamW(model.parameters())
        for x in batches(torch, 4, 128, 256):
            loss = (model(x) - x).square().mean()
            step(opt, loss)
        scores.append(loss.item())


def pruned_and_rebuilt(torch, F, nn):
    width, model = 2048, None
    for _ in range(4):
        smaller = build(nn, width).cuda()
        if model is not None:
            with torch.no_grad():
                smaller[0].weight.copy_(model[0].weight[:width])
        model = smaller
        opt = torch.optim.AdamW(model.parameters())
        for x in batches(torch, 4, 128, 256):
            step(opt, (model(x) - x).square().mean())
        width = width * 3 // 4


def warm_up_of_a_copy(torch, F, nn):
    model = build(nn).cuda()
    for rate in (1e-5, 1e-4, 1e-3):
        tried = copy.deepcopy(model)
        opt = torch.optim.AdamW(tried.parameters(), rate)
        for x in batches(torch, 3, 128, 256):
            step(opt, (tried(x) - x).square().mean())
    del tried, opt
    opt = torch.optim.AdamW(model.parameters())
    for x in batches(torch, 6, 128, 256):
        step(opt, (model(x) - x).square().mean())


if __name__ == "__main__":
    import torch

    globals()[sys.argv[1].replace("-", "_")](torch, torch.nn.functional, torch.nn)
