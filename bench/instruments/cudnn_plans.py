"""Which workspaces cuDNN asks for on this machine's GPU: the truth for the phantom's convolutions.

    python bench/instruments/cudnn_plans.py SHAPES.json OUT.jsonl [--description CARD.json] [--seconds 600]

SHAPES.json is a list of convolutions, {"x": NCHW, "w": KCRS, "y": NKPQ, "p": padding, "s": stride,
"d": dilation, "g": groups}. For each one, each data type and layout and each of its three operations, the script asks
cuDNN's heuristic (instant mode, as PyTorch does) for its engines in order, finalises a plan for the
first ones, and writes a line:

    {"shape": 0, "type": "float32", "layout": "nchw", "operation": "forward",
     "plans": [{"workspace": 122065680, "engine": 48}, {"status": 3000}, ...]}

An engine that cannot be planned has a `status` instead of a workspace; PyTorch takes the next one.
With --description, what cuDNN says of the device goes to a file: the `cudnn_json` of a card.

Needs a GPU, and the torch whose cuDNN is to be measured. Nothing is executed on the device.
"""

import argparse
import ctypes
import itertools
import json
import time
from pathlib import Path

# From cudnn_graph.h: descriptors, attributes and types by their numbers there.
CONVOLUTION, ENGINE_CONFIGURATION, HEURISTIC, PLAN, GRAPH, TENSOR, DEVICE = 1, 3, 4, 5, 15, 17, 38
OPERATIONS = {"forward": (10, 700), "data gradient": (12, 706), "weight gradient": (11, 712)}
TYPES = {"float32": 0, "float16": 2, "bfloat16": 9}
T_HANDLE, T_DATA_TYPE, T_BOOLEAN, T_INT64, T_FLOAT, T_INT32, T_HEURISTIC_MODE, T_MODE, T_DESCRIPTOR, T_CHAR = 0, 1, 2, 3, 4, 23, 8, 7, 15, 24
INSTANT = 0
CROSS_CORRELATION = 1
FLOAT = 0


class Refused(Exception):
    """cuDNN's status, which is not success."""


class Cudnn:
    """The library, and descriptors that go when the block ends."""

    def __init__(self):
        import nvidia.cudnn

        path = Path(next(iter(nvidia.cudnn.__path__)), "lib", "libcudnn.so.9")
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(None)  # As torch finds the functions: a phantom comes before cuDNN.
        self.library.cudnnBackendDestroyDescriptor.argtypes = [ctypes.c_void_p]
        handle = ctypes.c_void_p()
        self.check(self.library.cudnnCreate(ctypes.byref(handle)))
        self.handle = handle.value
        self.made = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        while self.made:
            self.library.cudnnBackendDestroyDescriptor(self.made.pop())

    @staticmethod
    def check(status):
        if status:
            raise Refused(status)

    def make(self, kind):
        descriptor = ctypes.c_void_p()
        self.check(self.library.cudnnBackendCreateDescriptor(kind, ctypes.byref(descriptor)))
        self.made.append(descriptor)
        return descriptor

    def set(self, descriptor, attribute, kind, values, ctype):
        array = (ctype * len(values))(*values)
        count = ctypes.c_int64(len(values))
        self.check(self.library.cudnnBackendSetAttribute(descriptor, attribute, kind, count, array))

    def finalize(self, descriptor):
        self.check(self.library.cudnnBackendFinalize(descriptor))
        return descriptor

    def get(self, descriptor, attribute, kind, room, array):
        """Fills `array`, and returns how many there are."""
        count = ctypes.c_int64()
        self.check(self.library.cudnnBackendGetAttribute(descriptor, attribute, kind, ctypes.c_int64(room), ctypes.byref(count), array))
        return count.value

    def text(self, descriptor, attribute):
        size = self.get(descriptor, attribute, T_CHAR, 0, None)
        buffer = ctypes.create_string_buffer(size + 1)
        self.get(descriptor, attribute, T_CHAR, size, buffer)
        return buffer.value.decode()


def describe_device(cudnn):
    with cudnn:
        device = cudnn.make(DEVICE)
        cudnn.set(device, 2700, T_INT32, [0], ctypes.c_int32)
        return cudnn.text(cudnn.finalize(device), 2702)


def make_tensor(cudnn, uid, dimensions, data_type, layout):
    n, c, h, w = dimensions
    strides = [c * h * w, h * w, w, 1] if layout == "nchw" else [c * h * w, 1, w * c, c]
    tensor = cudnn.make(TENSOR)
    cudnn.set(tensor, 901, T_DATA_TYPE, [data_type], ctypes.c_int)
    cudnn.set(tensor, 902, T_INT64, dimensions, ctypes.c_int64)
    cudnn.set(tensor, 903, T_INT64, strides, ctypes.c_int64)
    cudnn.set(tensor, 906, T_INT64, [uid], ctypes.c_int64)
    cudnn.set(tensor, 900, T_INT64, [16], ctypes.c_int64)  # Alignment.
    return cudnn.finalize(tensor)


def make_graph(cudnn, shape, operation, data_type, layout):
    convolution = cudnn.make(CONVOLUTION)
    cudnn.set(convolution, 106, T_INT64, [2], ctypes.c_int64)
    cudnn.set(convolution, 100, T_DATA_TYPE, [FLOAT], ctypes.c_int)
    cudnn.set(convolution, 101, T_MODE, [CROSS_CORRELATION], ctypes.c_int)
    for attribute, name in ((105, "p"), (104, "p"), (102, "d"), (103, "s")):
        cudnn.set(convolution, attribute, T_INT64, shape[name], ctypes.c_int64)
    cudnn.finalize(convolution)
    kind, first = OPERATIONS[operation]
    node = cudnn.make(kind)
    x, w, y = (make_tensor(cudnn, uid, shape[name], data_type, layout) for uid, name in ((120, "x"), (119, "w"), (121, "y")))
    for attribute, descriptor in ((2, convolution), (3, w), (4, x), (5, y)):
        cudnn.set(node, first + attribute, T_DESCRIPTOR, [descriptor], ctypes.c_void_p)
    cudnn.set(node, first, T_FLOAT, [1.0], ctypes.c_float)
    cudnn.set(node, first + 1, T_FLOAT, [0.0], ctypes.c_float)
    graph = cudnn.make(GRAPH)
    cudnn.set(graph, 801, T_DESCRIPTOR, [cudnn.finalize(node)], ctypes.c_void_p)
    cudnn.set(graph, 800, T_HANDLE, [cudnn.handle], ctypes.c_void_p)
    return cudnn.finalize(graph)


def plans(cudnn, shape, operation, data_type, layout, wanted):
    """The heuristic's engines in order, until `wanted` of them have a workspace."""
    with cudnn:
        heuristic = cudnn.make(HEURISTIC)
        graph = make_graph(cudnn, shape, operation, data_type, layout)
        cudnn.set(heuristic, 201, T_DESCRIPTOR, [graph], ctypes.c_void_p)
        cudnn.set(heuristic, 200, T_HEURISTIC_MODE, [INSTANT], ctypes.c_int)
        cudnn.finalize(heuristic)
        room = 24
        configurations = (ctypes.c_void_p * room)(*[cudnn.make(ENGINE_CONFIGURATION) for _ in range(room)])
        count = cudnn.get(heuristic, 202, T_DESCRIPTOR, room, configurations)
        res = []
        for configuration in configurations[:count]:
            try:
                plan = cudnn.make(PLAN)
                cudnn.set(plan, 401, T_DESCRIPTOR, [configuration], ctypes.c_void_p)
                cudnn.set(plan, 400, T_HANDLE, [cudnn.handle], ctypes.c_void_p)
                cudnn.finalize(plan)
                workspace = ctypes.c_int64()
                cudnn.get(plan, 402, T_INT64, 1, ctypes.byref(workspace))
                engine = json.loads(cudnn.text(plan, 405)).get("engine") or [{}]
                engine = engine[0] if isinstance(engine, list) else engine
                res.append({"workspace": workspace.value, "engine": engine.get("engineId")})
            except Refused as refused:
                res.append({"status": refused.args[0]})
            if sum("workspace" in it for it in res) == wanted:
                break
        return res


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--description", type=Path, help="write cuDNN's description of the device here")
    parser.add_argument("--types", nargs="*", default=["float32", "float16", "bfloat16"], choices=TYPES)
    parser.add_argument("--layouts", nargs="*", default=["nchw", "nhwc"], choices=["nchw", "nhwc"])
    parser.add_argument("--plans", type=int, default=3, help="how many plans of each convolution (3)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    options = parser.parse_args()

    import torch  # Loads cuDNN and makes the context.

    torch.zeros(1, device="cuda")
    cudnn = Cudnn()
    if options.description:
        options.description.write_text(describe_device(cudnn) + "\n")
    shapes = json.loads(options.shapes.read_text())
    end = time.monotonic() + options.seconds
    written = 0
    with options.out.open("w") as out:
        for data_type, layout, (i, shape), operation in itertools.product(options.types, options.layouts, enumerate(shapes), OPERATIONS):
            if end < time.monotonic():
                break
            row = {"shape": i, "type": data_type, "layout": layout, "operation": operation}
            try:
                row["plans"] = plans(cudnn, shape, operation, TYPES[data_type], layout, options.plans)
            except Refused as refused:
                row["status"] = refused.args[0]
            out.write(json.dumps(row) + "\n")
            written += 1
    print(f"{written} convolutions asked, {torch.cuda.get_device_name()}, cuDNN {torch.backends.cudnn.version()}")


if __name__ == "__main__":
    main()
