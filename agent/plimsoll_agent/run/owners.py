"""Which model a module belongs to, and its path there.

PyTorch's modules know their children, not their parents. A hook on registration remembers the
parents (weakly), so that `model.encode(x)`, which calls submodules without calling the model, still
gives `encoder.layers.3` and not three unrelated pieces. Wrappers (DDP, FSDP, torch.compile) do not
show in a path.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Module

_WRAPPING_CLASSES = {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "OptimizedModule"}
_WRAPPING_NAMES = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
_DEEPEST = 100


class Model:
    """An outermost module and how its parts are called."""

    __slots__ = ("reference", "name", "prefix")

    def __init__(self, reference: weakref.ref[Module], name: str, prefix: str) -> None:
        self.reference = reference
        self.name = name
        self.prefix = prefix


class Owners:
    """Every module's place in the model that owns it."""

    def __init__(self) -> None:
        self._parents: dict[int, tuple[weakref.ref[Module], weakref.ref[Module], str]] = {}
        self._paths: dict[int, tuple[weakref.ref[Module], str]] = {}
        self._models: dict[int, Model] = {}
        self._prefixes: set[str] = set()
        self._called: weakref.WeakSet[Module] = weakref.WeakSet()

    def registered(self, parent: Module, name: str, child: Module | None) -> None:
        """`child` became `parent.name`."""
        if child is None or child is parent:
            return
        if _is_list(parent) and self._parent(parent) is None and self._parent(child) is not None:
            return  # A slice, as `for layer in self.layers[:n]` makes one: the child is still called by its model.
        self._belongs(parent, name, child)
        if _is_list(child):  # They may have had another model until now.
            for inner, module in child._modules.items():
                if module is not None:
                    self._belongs(child, inner, module)

    def _belongs(self, parent: Module, name: str, child: Module) -> None:
        key = id(child)
        reference = weakref.ref(child, lambda _: self._parents.pop(key, None))
        self._parents[key] = (reference, weakref.ref(parent), name)
        # A path found before is no longer the whole path.
        self._paths.pop(key, None)

    def _parent(self, module: Module) -> Module | None:
        entry = self._parents.get(id(module))
        parent = entry[1]() if entry is not None and entry[0]() is module else None
        # A parent may have dropped the child since.
        return parent if entry is not None and parent is not None and _child(parent, entry[2]) is module else None

    def outermost(self, module: Module) -> Module:
        """The module that `module` is finally a part of; itself if nothing owns it."""
        for _ in range(_DEEPEST):
            parent = self._parent(module)
            if parent is None:
                return module
            module = parent
        return module

    def calls(self, module: Module) -> None:
        """It is called, by no other module."""
        self._called.add(self.outermost(module))

    def was_called(self, root: Module) -> bool:
        """Whether it, or a part of it, was called by no other module while `root` was its outermost one."""
        return root in self._called

    def path(self, module: Module) -> str:
        """`transformer.h.3.mlp` for a part, the class name for a whole model."""
        entry = self._paths.get(id(module))
        if entry is not None and entry[0]() is module:
            return entry[1]
        self._name(self.outermost(module))
        entry = self._paths.get(id(module))
        if entry is not None and entry[0]() is module:
            return entry[1]
        return self._remember(module, type(module).__name__)

    def _remember(self, module: Module, path: str) -> str:
        key = id(module)
        self._paths[key] = (weakref.ref(module, lambda _: self._paths.pop(key, None)), path)
        return path

    def _name(self, root: Module) -> None:
        """Gives every part of `root` its path."""
        model = self._model(root)
        for name, module in root.named_modules():
            path = _without_wrappers(root, name)
            self._remember(module, model.prefix + path if path else model.name)

    def _model(self, root: Module) -> Model:
        key = id(root)
        model = self._models.get(key)
        if model is not None and model.reference() is root:
            return model
        name = type(_unwrapped(root)).__name__
        reference = weakref.ref(root, lambda _: self._models.pop(key, None))
        model = Model(reference, name, "")
        if next(root.parameters(), None) is None and next(root.buffers(), None) is None:
            return model  # A loss function or an activation: nothing to name in it.
        if root.__dict__.get("_is_replica"):
            return model  # DataParallel makes these anew for every forward.
        # The first model's parts are called as in its state_dict; those of others say whose they are.
        taken, prefix, number = self._prefixes, "", 1
        while prefix in taken:
            prefix = "%s." % name if number == 1 else "%s#%d." % (name, number)
            number += 1
        taken.add(prefix)
        model.prefix = prefix
        self._models[key] = model
        return model

    def models(self) -> list[tuple[Module, Model]]:
        """The models that are alive, those never called too: (outermost module, Model)."""
        for reference, _, _ in list(self._parents.values()):
            child = reference()
            if child is not None:
                self._model(self.outermost(child))
        found = []
        for model in list(self._models.values()):
            root = model.reference()
            # Something called on its own first may since have become part of a bigger model.
            if root is not None and self.outermost(root) is root:
                found.append((root, model))
        return found

    def name_in(self, model: Model, root: Module, name: str) -> str:
        """A parameter's or buffer's name as people know it."""
        return model.prefix + _without_wrappers(root, name)


def _child(module: Module, name: str) -> Module | None:
    # TorchScript's modules keep theirs in a mapping that has no `get`.
    children = module._modules
    return children[name] if name in children else None  # noqa: SIM401


def _is_list(module: Module) -> bool:
    """A ModuleList or ModuleDict, a list of modules that nobody calls."""
    return getattr(getattr(type(module), "forward", None), "__name__", "") == "_forward_unimplemented"


def _unwrapped(root: Module) -> Module:
    for _ in range(_DEEPEST):
        if type(root).__name__ not in _WRAPPING_CLASSES:
            break
        inner = next((m for n, m in root._modules.items() if n == "module" or n in _WRAPPING_NAMES), None)
        if inner is None:
            break
        root = inner
    return root


def _without_wrappers(root: Module, name: str) -> str:
    parts = name.split(".")
    while parts and type(root).__name__ in _WRAPPING_CLASSES and (parts[0] == "module" or parts[0] in _WRAPPING_NAMES):
        root = _child(root, parts[0])
        parts = parts[1:]
    return ".".join(part for part in parts if part not in _WRAPPING_NAMES)
