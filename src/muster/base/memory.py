"""Free memory of the machine, and an error before an allocation that cannot fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .errors import MusterError
from .lazy import torch

if TYPE_CHECKING:
    from torch import device as Device

UNITS = ("bytes", "kB", "MB", "GB", "TB")
CGROUPS = (  # folder, limit, use, and what of the use is file cache: version 2, version 1
    ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    (
        "/sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)


def format_bytes(size: float) -> str:
    """Return a number of bytes in readable units.

    >>> format_bytes(9.3e9), format_bytes(120)
    ('9.3 GB', '120 bytes')
    """
    steps = 0
    while size >= 1000 and steps < len(UNITS) - 1:
        size, steps = size / 1000, steps + 1
    return f"{size:.1f} {UNITS[steps]}" if steps else f"{size:.0f} bytes"


def free_memory(device: Device | None = None) -> float:
    """Return the bytes available on a device, or to this process; infinity where unknown."""
    if device is not None and device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    found = [float("inf")]
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in ("MemAvailable", "SwapFree"):
                found.append(1024.0 * int(value.split()[0]))
        found = [sum(found[1:])] if len(found) > 1 else found
    except (OSError, ValueError):
        pass
    for folder, most, used, cache in CGROUPS:
        try:
            place = Path(folder)
            limit, taken = (float((place / name).read_text()) for name in (most, used))
            stat = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
            # The file cache is freed when memory is needed.
            found.append(limit - taken + float(stat.get(cache, 0)))
        except (OSError, ValueError):
            continue
    return min(found)


def require_memory(what: str, size: float, instead: str) -> None:
    """Raise an error if something takes more bytes than are free, with what to do instead."""
    free = free_memory()
    if size > free:
        short = f"need {format_bytes(size)}, and {format_bytes(free)} are free"
        raise MusterError(f"memory: {what} {short}; {instead}")
