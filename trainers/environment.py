"""Device, precision and numerics of a run. Every automatic choice comes with its reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from trainers.options import DeviceChoice, OptionsError, Precision

_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"  # cuBLAS is deterministic only with a fixed workspace


def choose_device(wanted: DeviceChoice) -> tuple[torch.device, str]:
    """(the device to train on, why)."""
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise OptionsError(
            "device = 'cuda', but torch sees no CUDA device; use 'auto' or 'cpu', or install a "
            "CUDA build of torch and its driver"
        )
    if wanted == "auto":
        if available:
            return torch.device("cuda"), f"cuda: found {torch.cuda.get_device_name()}"
        return torch.device("cpu"), "cpu: torch sees no CUDA device"
    return torch.device(wanted), f"{wanted}: set in the options"


def choose_precision(
    wanted: Precision, device: torch.device
) -> tuple[Literal["fp32", "bf16"], str]:
    """(``"fp32"`` or ``"bf16"``, why). bf16 is autocast: the weights stay fp32.

    bf16 has fp32's range, so that it needs no loss scaler; it pays where the machine has
    instructions for it and is slower than fp32 where it is emulated.
    """
    if wanted != "auto":
        return wanted, f"{wanted}: set in the options"
    if device.type == "cuda":
        has_bf16, where = torch.cuda.is_bf16_supported(including_emulation=False), "this GPU"
    else:
        capabilities = torch.cpu.get_capabilities()
        has_bf16 = any(capabilities.get(name) for name in ("amx_bf16", "avx512_bf16"))
        where = "this CPU"
    if has_bf16:
        return "bf16", f"bf16: {where} has bf16 instructions"
    return "fp32", f"fp32: {where} has no bf16 instructions"


@contextmanager
def deterministic_numerics(threads: int, device: torch.device) -> Iterator[None]:
    """Deterministic algorithms and ``threads`` CPU threads; all of it, and torch's random state,
    is put back on exit."""
    threads_before = torch.get_num_threads()
    deterministic_before = torch.are_deterministic_algorithms_enabled()
    warn_only_before = torch.is_deterministic_algorithms_warn_only_enabled()
    workspace_before = os.environ.get(_CUBLAS)
    devices = [torch.cuda.current_device()] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        try:
            torch.set_num_threads(threads)
            os.environ.setdefault(_CUBLAS, ":4096:8")
            torch.use_deterministic_algorithms(True)
            yield
        finally:
            torch.use_deterministic_algorithms(deterministic_before, warn_only=warn_only_before)
            if workspace_before is None:
                os.environ.pop(_CUBLAS, None)
            torch.set_num_threads(threads_before)
