"""What a module is called, by the model that it is a part of."""

import pytest


@pytest.fixture
def named():
    """Calls a program with `torch.nn`, a model, and the function that names a module, while modules that are built are seen."""
    # Not above: each process of the suite would wait for torch.
    from plimsoll_agent.run.owners import Owners
    from torch import nn
    from torch.nn.modules.module import register_module_module_registration_hook

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

    def run(program):
        owners = Owners()
        with register_module_module_registration_hook(lambda parent, name, child: owners.registered(parent, name, child)):
            program(nn, Model, owners.path)

    return run


def test_a_slice_of_a_list_leaves_its_modules_where_they_are(named):
    def program(nn, Model, path):
        model = Model()
        for number, layer in enumerate(model.layers[:2]):  # as Llama and Qwen go through theirs
            assert path(layer) == f"layers.{number}"
        for number, layer in enumerate(nn.ModuleList(reversed(model.layers))):
            assert path(layer) == f"layers.{2 - number}"

    named(program)


def test_a_list_that_becomes_part_of_another_model_takes_its_modules_there(named):
    def program(nn, Model, path):
        model, student = Model(), Model()
        student.layers = model.layers[1:]
        del model
        student.head = nn.Linear(2, 2)
        assert [path(layer) for layer in student.layers] == ["layers.0", "layers.1"]

    named(program)


def test_a_model_of_parts_names_them_its_own_way(named):
    def program(nn, Model, path):
        model = Model()
        backbone = nn.Sequential(*model.layers)  # can be called, so it is a model
        assert path(backbone[1]) == "1"

    named(program)


def test_parts_outlive_a_list_that_was_never_a_model(named):
    def program(nn, Model, path):
        loose = [nn.Linear(2, 2)]
        nn.ModuleList(loose)
        assert path(loose[0]) == "Linear"

    named(program)
