"""Which ranks a script treats unlike others, by its text."""

import ast

import pytest
from plimsoll_agent.ranks import named


@pytest.mark.parametrize(
    "text, ranks",
    [
        ("batch = 32 if rank == 1 else 16", {1}),
        ("if int(os.environ['LOCAL_RANK']) in (2, 5): load()", {2, 5}),
        ("if dist.get_rank() < 2: grow()", {1, 2}),
        ("if 5 >= self.local_rank: grow()", {5, 6}),
        ("if rank == world_size // 2: grow()", {4}),
        ("sizes = [8, 16, 8, 32]\nbatch = sizes[rank]", {0, 1, 3}),
        ("batch = {3: 64}.get(args.local_rank, 8)", {3}),
        ("if rank % 2 == 0: grow()", {1}),
        ("node = rank // 4\nif rank // 4: grow()", {4}),
        ("if accelerator.process_index == 3: grow()", {3}),
        # Each reads what is its own.
        ("tokens = np.memmap(f'tokens-{rank}.bin')", {1, 6}),
        ("path = os.path.join(root, 'part%d.json' % rank)\nwith open(path) as f: rows = f.readlines()", {1, 6}),
        ("rows = (root / f'{dist.get_rank()}.jsonl').read_text()", {1, 6}),
        ("with open('sizes.json') as f: sizes = json.load(f)\nbatch = sizes[rank]", {1, 6}),
        ("part = torch.load(sorted(glob.glob('*.pt'))[local_rank])", {1, 6}),
        # Every rank does the same.
        ("weights = torch.load('all.pt', map_location=f'cuda:{rank}')", set()),
        ("log = open(f'log-{rank}.txt', 'w')\nsave(f'part-{rank}.pt')", set()),
        ("all = gathered[rank]\nmodel.load_state_dict(states[rank])", set()),
        ("device = rank % 8; torch.cuda.set_device(rank)", set()),
        ("seed = 1234 + rank; part = data[rank::world_size]", set()),
        ("if rank == 0: save()\nif rank != world_size - 1: pass", {0, 7}),
        ("if lora_rank == 8 or ranks == 3: grow()", set()),
        ("devices = get()\ngpu = devices[rank]", set()),
    ],
)
def test_ranks_of_eight_that_a_line_treats_unlike_others(text, ranks):
    assert named.of_text(ast.parse(text), 8) == ranks


def test_a_rank_alone_is_that_of_a_matrix_where_nothing_is_distributed():
    assert named.of_text(ast.parse("if rank == 4: factorise()"), 8, is_distributed=False) == set()
