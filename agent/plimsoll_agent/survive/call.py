"""One call of a model in training, which can be made again.

What autograd saves for backward goes through cells, so that a call can let go of it: it is then made once more when backward
asks, as PyTorch's checkpoints do, and what it saves waits on the host. Nothing of a call outlives autograd's graph of it: the
graph holds the cells, the cells hold the call.
"""

import contextlib
import functools
import weakref

from plimsoll_agent.remedies.support import split
from plimsoll_agent.remedies.support.host import before_expansion, is_parameter
from plimsoll_agent.remedies.support.ways import with_one_label
from plimsoll_agent.run.nested import rebuilt, tensors_in
from plimsoll_agent.survive import CannotRedo, graph


class Call:
    """A call of a model, or of a loss that has none. `call` makes it; `then` is how everything was before."""

    def __init__(self, torch, hooks, host, module, call, args, kwargs, then):
        self._torch, self._hooks, self._host = torch, hooks, host
        self._call, self._args, self._kwargs, self._then = call, args, kwargs, then
        self.module = weakref.ref(module) if module is not None else _nothing
        self._versions = [_version(it) for it in self._inputs()]
        self._weights = [(it, it._version) for it in module.parameters()] if module is not None else []
        self._autocast = _autocast(torch)
        self._cells = []
        self._places = set()  # Which of the tensors that it returned have a gradient.
        self.gradients = {}  # Of each output, by its number, in the backward pass that is under way.
        self._gone_on = set()  # The inputs, by their number, whose gradient that pass has gone on with.
        self.drew = False

    def _inputs(self):
        return tensors_in(self._torch, (self._args, self._kwargs))

    def run(self, on_host=False):
        """Makes it. What is saved for backward stays on the device, or waits on the host."""

        def pack(tensor):
            cell = _Cell(self, tensor)
            if on_host:
                cell.send()
            self._cells.append(weakref.ref(cell))
            return cell

        with self._torch.autograd.graph.saved_tensors_hooks(pack, _Cell.fetch):
            return self._call(*self._args, **self._kwargs)

    def run_as(self, run):
        """Makes it as `run(call, args, kwargs)` does."""
        return run(self._call, self._args, self._kwargs)

    def watch(self, output, found):
        """Notes the gradients of what it returned; `found(call)` is told of each. True if it has any."""
        all = tensors_in(self._torch, output)
        self._places = {i for i, it in enumerate(all) if self._is_made_here(it)}
        tensors = [all[i] for i in sorted(self._places)]
        for number, tensor in enumerate(tensors):
            tensor.grad_fn.metadata.setdefault(graph.KEY, (self, []))[1].append(number)
            tensor.register_hook(functools.partial(_got, weakref.ref(self), number, found))
        if tensors:
            for number, tensor in enumerate(self._inputs()):
                if tensor.requires_grad and tensor.grad_fn is not None:
                    tensor.register_hook(functools.partial(_went_on, weakref.ref(self), number))
        return bool(tensors)

    def _is_made_here(self, tensor):
        # One that another call made, and that this one only hands on, is the other's.
        is_others = tensor.grad_fn is None or any(it is tensor for it in self._inputs())
        return tensor.requires_grad and not is_others and tensor.grad_fn.metadata.get(graph.KEY, (self,))[0] is self

    def pass_is_over(self):
        """The backward pass is; the gradients go."""
        self.gradients.clear()
        self._gone_on.clear()

    def is_done_with(self):
        """Its graph was used up: nothing of the call is needed any more, and a loss that somebody keeps must not keep it."""
        self._args, self._kwargs, self._call, self._then, self._weights = (), {}, None, None, []

    def let_go(self):
        """Lets go of what is saved for backward."""
        for it in self._cells:
            cell = it()
            if cell is not None:
                cell.let_go()

    def continuations(self):
        """The inputs that want gradients, by number: those that this pass had not gone on with yet, and the others."""
        inputs = {i: it for i, it in enumerate(self._inputs()) if it.requires_grad}
        later = {i: it for i, it in inputs.items() if i not in self._gone_on}
        return later, [it for i, it in inputs.items() if i in self._gone_on]

    def leaves(self):
        """Every parameter of its model, and what else it was given, that gets a gradient."""
        module = self.module()
        given = (it for it in self._inputs() if it.is_leaf)
        return [it for it in (*(module.parameters() if module is not None else ()), *given) if it.requires_grad]

    def check(self, for_backward):
        """Raises CannotRedo if the call would not be the same any more."""
        if self._call is None:
            raise CannotRedo("its graph was used before")
        if [_version(it) for it in self._inputs()] != self._versions:
            raise CannotRedo("something was written into what the model was given")
        if for_backward and any(it._version != version for it, version in self._weights):
            raise CannotRedo("its weights have changed since, as an optimizer does that steps inside backward")

    @contextlib.contextmanager
    def as_it_was(self):
        """The same precision, and nothing that is called is a call of its own."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._hooks.as_one_call())
            for it in self._autocast:
                stack.enter_context(self._torch.autocast(**it))
            yield

    @contextlib.contextmanager
    def _as_then(self):
        with self.as_it_was(), self._then.again(), self._torch.enable_grad():
            yield

    def fill_again(self):
        """Makes the call again for what it let go of, which then waits on the host."""
        self.check(for_backward=False)
        count = 0

        def pack(tensor):
            nonlocal count
            cell = self._cells[count]() if count < len(self._cells) else None
            count += 1
            if cell is not None:
                cell.fill(tensor)

        with self._as_then(), self._torch.autograd.graph.saved_tensors_hooks(pack, _nobody_asks):
            self._call(*self._args, **self._kwargs)
        if count != len(self._cells):
            raise RuntimeError(
                "plimsoll run --survive: the model's call was made again and saved %d tensors for backward instead of %d; "
                "it decides by something that plimsoll does not see" % (count, len(self._cells))
            )

    def backward_again(self, numbers, is_left, part=None):
        """Makes the call again and runs backward from the gradients of its outputs, of those with these numbers.

        Only parameters for which `is_left` get a gradient. What is saved waits on the host. `part`: of the batch, as
        `(whole, along, start, end, way)`. Returns the gradients of its inputs, by number.
        """
        torch = self._torch
        twins = {}

        def twin(tensor):
            number = len(twins)
            # Also of what wants none: numbers are those of the inputs.
            twins[number] = tensor.detach().requires_grad_(tensor.requires_grad)
            return twins[number]

        args, kwargs = rebuilt(torch, self._args, twin), rebuilt(torch, dict(self._kwargs), twin)
        if part is not None:
            whole, along, start, end, way = part
            weight = functools.partial(way.weights, kwargs, whole, start, end) if way.has_loss else None
        # Those that have theirs take no part; `backward(inputs=...)` would not do where a model checkpoints itself in the older way.
        with self._as_then(), _frozen([it for it in self.leaves() if not is_left(it)]):
            if part is not None:
                args, kwargs = split.part_of(torch, args, kwargs, whole, start, end, along)
                kwargs = with_one_label(torch, way, kwargs)
            with torch.autograd.graph.saved_tensors_hooks(self._send, self._fetch):
                output = self._call(*args, **kwargs)
            tensors = [it for i, it in enumerate(tensors_in(torch, output)) if i in self._places]
            roots, gradients = [], []
            for number in sorted(numbers):
                tensor, gradient = tensors[number], self.gradients[number]
                if gradient is None or tensor.grad_fn is None:
                    continue
                if part is not None and gradient.dim() == 0:
                    tensor = tensor * weight()
                elif part is not None:
                    dimension = next(it for it in (way.axis, 0) if gradient.dim() > it and gradient.size(it) == whole)
                    gradient = gradient.narrow(dimension, start, end - start)
                roots.append(tensor)
                gradients.append(gradient)
            del output, tensors
            if graph.is_one_below_another(torch, roots):
                raise CannotRedo("the script uses what its model's loss is made of, beside the loss")
            own = {id(it) for it in twins.values()}
            if not all(id(it) in own or is_left(it) for it in graph.leaves_below(torch, roots)):
                raise CannotRedo("its model reaches parameters by other ways than its own")
            if roots:
                torch.autograd.backward(roots, gradients)
        return {number: it.grad for number, it in twins.items() if it.grad is not None}

    def _send(self, tensor):
        torch = self._torch
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or is_parameter(torch, tensor):
            return None, tensor, None
        return tensor.device, self._host.send(before_expansion(tensor)), tensor.size()

    def _fetch(self, packed):
        device, kept, size = packed
        return kept if device is None else self._host.fetch(kept, device).expand(size)


class _Cell:
    """A tensor that is saved for backward: on the device, on the host, or let go of."""

    __slots__ = ("_call", "_tensor", "_version", "_packed", "_stays", "__weakref__")

    def __init__(self, call, tensor):
        # The very tensor would hold the graph that holds it.
        self._call, self._tensor, self._version, self._packed = call, tensor.detach(), _version(tensor), None
        self._stays = is_parameter(call._torch, tensor)

    def send(self):
        if not self._stays:
            self._packed, self._tensor = self._call._send(self._tensor), None

    def fill(self, tensor):
        if self._tensor is None and self._packed is None:
            self._packed = self._call._send(tensor)

    def let_go(self):
        if not self._stays and self._packed is None:
            self._tensor = None

    def fetch(self):
        if self._tensor is None:
            if self._packed is None:
                self._call.fill_again()
            return self._call._fetch(self._packed)
        if _version(self._tensor) != self._version:
            # PyTorch's own check, which it leaves out where somebody else keeps what is saved.
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor of "
                "shape %s" % (list(self._tensor.shape),)
            )
        return self._tensor


def _nothing():
    return None


def _nobody_asks(packed):
    raise RuntimeError("plimsoll run --survive: a graph that is thrown away was used")


def _version(tensor):
    return 0 if tensor.is_inference() else tensor._version


@contextlib.contextmanager
def _frozen(parameters):
    for it in parameters:
        it.requires_grad_(False)
    try:
        yield
    finally:
        for it in parameters:
            it.requires_grad_(True)


def _got(call, number, found, gradient):
    call = call()
    if call is not None:
        call.gradients[number] = gradient
        found(call)


def _went_on(call, number, gradient):
    call = call()
    if call is not None:
        call._gone_on.add(number)


def _autocast(torch):
    cached = torch.is_autocast_cache_enabled()
    return [
        {"device_type": it, "dtype": torch.get_autocast_dtype(it), "enabled": torch.is_autocast_enabled(it), "cache_enabled": cached}
        for it in ("cuda", "cpu")
    ]
