"""FlashInfer, and SGLang through tvm_ffi, compile kernels with nvcc when they are first called. Where a machine has no nvcc, these kernels do nothing, as
all kernels on a phantom: what they read and write is allocated in Python. Only the memory of their code is missing then."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.after_import import after_import

if TYPE_CHECKING:
    from collections.abc import Callable

    from plimsoll_agent.kinds import Function
    from plimsoll_agent.run.recording import Recording


class _Kernels:
    """A module of functions that do nothing. Those that plan a launch have an empty plan, which only goes back to them."""

    def __getattr__(self, name: str) -> Function:
        return lambda *args, **kwargs: [] if name.endswith("plan") else None


def install(recording: Recording) -> None:
    def nothing(kernels: str) -> _Kernels:
        text = f"this machine has no nvcc, which compiles {kernels}: the memory of their code is not counted; CUDA_HOME names a CUDA toolkit"
        recording.note("uncompiled-kernels", text)
        return _Kernels()

    def build_and_load(real: Function) -> Function:
        def build_and_load(spec: Any, *args: Any, **kwargs: Any) -> Any:
            is_compiled_here = hasattr(spec, "write_ninja") and not spec.is_aot
            if not is_compiled_here or _has_compiler(sys.modules["flashinfer.jit.cpp_ext"].get_cuda_path):
                return real(spec, *args, **kwargs)
            return nothing("FlashInfer's kernels")

        return build_and_load

    def setup_cubin_loader(real: Function) -> Function:
        def setup_cubin_loader(path: Any) -> Any:
            # Of a library that was never made: its kernels are those above, and load no machine code.
            return real(path) if os.path.exists(path) else None

        return setup_cubin_loader

    def load(real: Function) -> Function:
        def load(name: str, *args: Any, **kwargs: Any) -> Any:
            sources = kwargs.get("sources") or ()
            named = (sources,) if isinstance(sources, str) else sources
            has_kernels = kwargs.get("cuda_sources") or kwargs.get("cuda_files") or any(str(it).endswith(".cu") for it in named)
            if not has_kernels or _has_compiler(sys.modules["tvm_ffi.cpp.extension"]._find_cuda_home):
                return real(name, *args, **kwargs)
            return nothing("kernels of tvm_ffi (SGLang's)")

        return load

    def of_tvm_ffi(module: Any) -> None:
        for name in ("load", "load_inline"):
            patch.replace(module, name, load)

    after_import("tvm_ffi.cpp.extension", of_tvm_ffi)
    after_import("flashinfer.jit.cubin_loader", lambda module: patch.replace(module, "setup_cubin_loader", setup_cubin_loader))
    after_import("flashinfer.jit.core", lambda module: patch.replace(module.JitSpec, "build_and_load", build_and_load))


def _has_compiler(cuda_home: Callable[[], str]) -> bool:
    """Whether there is an nvcc where the library looks for it."""
    try:
        return os.path.exists(os.path.join(cuda_home(), "bin", "nvcc"))
    except RuntimeError:
        return False
