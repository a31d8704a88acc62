"""What machine this is and what it does best; torch is imported only by the functions that need it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from sightline.errors import InputError, unknown_name_error

if TYPE_CHECKING:
    import torch

# The processor features that decide a speed, the fastest first; the best one that is there is named.
_FEATURES = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")
# Of 50 nanoseconds or so each; as many as GNU's OpenMP takes where it knows of more threads than cores.
_TURNS = "1000"


def cpu_count() -> int:
    """How many cores this process may use (its affinity, not the number that the machine has)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def hardware_name(device: str | torch.device = "cpu") -> str:
    """The machine in words, for a result row: "AMD EPYC, 2 cores, avx512_bf16"; a GPU's name comes first."""
    name, feature = processor()
    words = [name, f"{cpu_count()} {'core' if cpu_count() == 1 else 'cores'}", feature]
    if str(device).startswith("cuda"):
        import torch

        words.insert(0, torch.cuda.get_device_name(device))
    return ", ".join(filter(None, words))


@functools.cache
def processor() -> tuple[str, str]:
    """Its name, and the best of the features that it has, "" where it has none of them."""
    # Every core says the same.
    fields = _read_fields(Path("/proc/cpuinfo"))
    name = " ".join(fields.get("model name", "").split()) or platform.processor() or platform.machine()
    flags = fields.get("flags", "").split()
    return name or "unknown processor", next((feature for feature in _FEATURES if feature in flags), "")


@functools.cache
def cpu_vendor() -> Literal["amd", "intel", "other"]:
    """The maker of the processor, as Linux names it."""
    vendors: dict[str, Literal["amd", "intel"]] = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}
    return vendors.get(_read_fields(Path("/proc/cpuinfo")).get("vendor_id", ""), "other")


def cache_folder() -> Path | None:
    """Where what was learned once is kept: $SIGHTLINE_CACHE (empty: nowhere, None), or sightline in $XDG_CACHE_HOME or
    ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    asked = os.environ.get("SIGHTLINE_CACHE", f"{base}/sightline")
    return Path(asked) if asked else None


def _read_fields(file: Path) -> dict[str, str]:
    """What the system says in a file of lines "name: value"; nothing where it cannot be read."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


@functools.cache
def git_commit() -> str:
    """The git commit of the source checkout, 12 digits, with "+dirty" if `src` or a benchmark differs from it.

    Outside a checkout (an installed package, no git, no commit yet) it is the version, "sightline 0.2.0".
    It is read once, so that all rows of a run agree.
    """
    from sightline import __version__

    root = Path(__file__).resolve().parents[3]
    # A package in site-packages may lie inside somebody else's checkout, whose commit says nothing about it.
    ours = (root / ".git").exists() and (root / "src" / "sightline" / "distributed" / "machine.py").exists()
    head = _git(root, "rev-parse", "--short=12", "HEAD") if ours else ""
    if not head:
        return f"sightline {__version__}"
    return head + ("+dirty" if _git(root, "status", "--porcelain", "--", "src", "benchmarks/*.py") else "")


def _git(root: Path, *arguments: str) -> str:
    # A hook's GIT_DIR would point to another repository; without optional locks, asking never writes.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    command = ["git", "-C", str(root), *arguments]
    try:
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()


def set_threads(count: int | None = None) -> int:
    """Let torch compute with `count` threads; returns the number. None: one a core, or fewer by $OMP_NUM_THREADS.

    Raises:
        InputError: `count` is not positive, or more than 8 a core (and than 64).
    """
    import torch

    given, threads = os.environ.get("OMP_NUM_THREADS", ""), count
    if threads is None:
        threads = cpu_count()
        if re.fullmatch("0*[1-9][0-9]{0,3}", given):
            threads = min(threads, int(given))
    if threads < 1:
        raise InputError(f"threads = {threads}: expected a whole number of at least 1")
    _refuse_many("threads", threads, 64)
    torch.set_num_threads(threads)
    return threads


def shorten_openmp_spin() -> None:
    """Let threads that wait for one another sleep soon, unless the environment says how long they wait; to be called
    before torch is imported.

    GNU's OpenMP turns for milliseconds at the end of each operator: beside other work, a thread so takes the core that
    the one it waits for needs (docs/explanation/decisions/threads.md).
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _TURNS)


def check_workers(count: int) -> int:
    """`count`, the processes that read ahead.

    Raises:
        InputError: it is negative, or more than 8 a core (and than 16).
    """
    if count < 0:
        raise InputError(f"workers {count}: must be at least 0")
    _refuse_many("workers", count, 16)
    return count


def _refuse_many(name: str, count: int, always: int) -> None:
    """Refuse so many that starting them would be the end of this machine."""
    most = max(8 * cpu_count(), always)
    if count > most:
        raise InputError(f"{name} {count}: expected at most {most} here (this process may use {cpu_count()} cores)")


def has_cpu_feature(feature: Literal["amx_tile", "avx512_bf16"]) -> bool:
    """Whether this processor multiplies in bfloat16 matrices by AMX tiles, or vectors by AVX-512."""
    import torch

    # Private names in torch: where a release has dropped one, the safe answer is no.
    probe = getattr(torch.cpu, f"_is_{feature}_supported", None)
    return probe is not None and bool(probe())


def peak_memory(device: str | torch.device = "cpu") -> int:
    """The most memory that was in use so far, in bytes: this process's, or that of torch on a GPU."""
    if str(device).startswith("cuda"):
        import torch

        return torch.cuda.max_memory_allocated(device)
    # Not the resource usage, which a process inherits from the one that started it, however large that was.
    most = _read_fields(Path("/proc/self/status")).get("VmHWM")
    if most is not None:
        return int(most.split()[0]) * 1024
    import resource

    # macOS counts bytes there.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def reset_peak_memory(device: str | torch.device = "cpu") -> bool:
    """From here on `peak_memory` is the most that was in use since now; whether it can be: of this process Linux alone
    says it, and where it lets a process ask."""
    if str(device).startswith("cuda"):
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        return True
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    told = _read_fields(Path("/proc/self/status"))
    most, now = (int((told.get(name) or "0").split()[0]) for name in ("VmHWM", "VmRSS"))
    # In kilobytes; some systems take what is written and do nothing.
    return 0 < most <= now + 1024


def available_memory(device: str | torch.device = "cpu") -> int | None:
    """The memory that can still be taken here, in bytes, or None where it is not known; on a GPU what is free there and
    what torch holds without using it."""
    if str(device).startswith("cuda"):
        import torch

        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    available = _read_fields(Path("/proc/meminfo")).get("MemAvailable")
    return None if available is None else int(available.split()[0]) * 1024


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was asked for that is not there, which torch says by a plain RuntimeError on a CPU."""
    words = ("out of memory", "allocate memory", "not enough memory", "Storage size calculation overflowed")
    return isinstance(error, MemoryError | OverflowError) or any(word in str(error) for word in words)


def resolve_device(name: str | torch.device) -> torch.device:
    """The device for "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1" or "mps", or for torch's own name of it.

    Raises:
        InputError: there is no such device here; the message lists those that there are.
    """
    import torch

    there = ["mps", "cpu"] if torch.backends.mps.is_available() else ["cpu"]
    if torch.cuda.is_available():
        there = ["cuda", *(f"cuda:{index}" for index in range(torch.cuda.device_count())), *there]
    if str(name) not in ("auto", *there):
        raise unknown_name_error("device", name, ["auto", *there])
    return torch.device(there[0] if str(name) == "auto" else name)


@contextlib.contextmanager
def preserve_rng_state() -> Iterator[None]:
    """Inside, numbers may be drawn; afterwards torch's generators, of the processor and of GPUs, are as they were."""
    import torch

    # A GPU that nothing was asked of yet is not woken for this.
    used = torch.cuda.is_initialized() or torch.get_default_device().type == "cuda"
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if used else ()):
        yield


# Definitions of operators end with the object that made them.
_operators: list[object] = []


@functools.cache
def import_timm() -> ModuleType:
    """timm, also where torchvision was built for another torch and its operators are missing."""
    from torch.library import Library

    try:
        return importlib.import_module("timm")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    # torchvision asks for two operators that no vision transformer calls; what it left half imported must go.
    for name in [name for name in sys.modules if name.split(".")[0] in ("timm", "torchvision")]:
        del sys.modules[name]
    operators = Library("torchvision", "FRAGMENT")
    _operators.append(operators)
    operators.define("nms(Tensor dets, Tensor scores, float threshold) -> Tensor")
    operators.define("qnms(Tensor dets, Tensor scores, float threshold) -> Tensor")
    return importlib.import_module("timm")
