"""TF32: matrix products of float32 run on tensor cores with 10 bits of mantissa. Time only, no memory."""


def apply(torch, parameters, hooks, note):
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
