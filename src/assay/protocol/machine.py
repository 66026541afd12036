"""The machine a run is measured on: what it is, how busy, how warm, and how much memory a process took."""

import contextlib
import os
import platform
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

BUSY_CORES = 0.3
"""Other processes' use of the CPU, in cores, above which a machine is called busy."""

THROTTLED_FREQUENCY = 0.8
"""Part of the highest clock below which a core that was under load is called throttled."""

HOT_C = 85.0
"""Thermal zone reading above which throttling must be expected."""

_MIB = 2**20


def _read(path: str) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return Path(path).read_text().strip()
    return None


def cpu_model() -> str:
    """The processor's name as the system gives it."""
    info = _read("/proc/cpuinfo") or ""
    for key in ("model name", "Model", "Hardware"):
        for line in info.splitlines():
            if line.startswith(key) and ":" in line:
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def board_model() -> str | None:
    """The board's name as its firmware gives it, such as `Raspberry Pi 5 Model B Rev 1.0`; None on most PCs."""
    return (_read("/proc/device-tree/model") or "").strip("\0 ") or None


def label() -> str:
    """A short name for this kind of machine: processor and number of cores, never a host name."""
    name = re.sub(r"\((?:R|TM|C)\)|\bCPU\b|\bProcessor\b|@.*", " ", cpu_model(), flags=re.IGNORECASE)
    return "-".join([*name.split(), f"{os.cpu_count()}-cores"]).lower()


def os_name() -> str:
    """Name and version of the operating system, for example `Debian GNU/Linux 12 (bookworm)`."""
    with contextlib.suppress(OSError):
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    return f"{platform.system()} {platform.release()}"


def describe() -> dict[str, Any]:
    """The machine in a record's words: CPU model, cores, OS, kernel, memory, Python."""
    return {
        "cpu_model": cpu_model(),
        "cores": os.cpu_count(),
        "arch": platform.machine(),
        "os": os_name(),
        "kernel": platform.platform(),
        "memory_mb": psutil.virtual_memory().total // _MIB,
        "python": platform.python_version(),
    }


@dataclass(frozen=True)
class Clock:
    """CPU time spent so far, in seconds: by the whole machine, by processes of ours, and stolen by the host."""

    wall: float
    busy: float
    stolen: float
    ours: float


def read_clock() -> Clock:
    """CPU time so far; `ours` is this process and its living and ended children."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    stolen = getattr(times, "steal", 0.0)
    busy = sum(times) - idle - stolen - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    me = psutil.Process()
    ours = sum(me.cpu_times()[:4])
    for child in me.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            ours += sum(child.cpu_times()[:4])
    return Clock(time.monotonic(), busy, stolen, ours)


def others_cores(before: Clock, after: Clock) -> float:
    """Cores that processes other than ours kept busy between two readings, stolen time included."""
    wall = max(after.wall - before.wall, 1e-9)
    busy = after.busy - before.busy - (after.ours - before.ours) + after.stolen - before.stolen
    return max(busy, 0.0) / wall


@dataclass(frozen=True)
class State:
    """Signs of heat and load at one moment; None where the machine does not tell.

    Attributes:
        load1: Load average of the last minute.
        frequency_ratio: Slowest core's clock over its highest clock.
        hottest_c: Warmest thermal zone, in degrees Celsius.
    """

    load1: float | None
    frequency_ratio: float | None
    hottest_c: float | None

    def to_dict(self) -> dict[str, float | None]:
        """As JSON."""
        return asdict(self)


def read_state() -> State:
    """Load, clock and temperature now."""
    ratios: list[float] = []
    for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq"):
        current, highest = _read(f"{folder}/scaling_cur_freq"), _read(f"{folder}/cpuinfo_max_freq")
        if current and highest and current.isdigit() and highest.isdigit() and int(highest) > 0:
            ratios.append(int(current) / int(highest))
    heat: list[float] = []
    for zone in Path("/sys/class/thermal").glob("thermal_zone*/temp"):
        text = _read(str(zone))
        with contextlib.suppress(ValueError):
            heat.append(float(text or "") / 1000.0)
    load = None
    with contextlib.suppress(OSError):
        load = os.getloadavg()[0]
    return State(load, min(ratios, default=None), max(heat, default=None))


def disturbances(others: float | None, before: State, after: State) -> list[str]:
    """Why timings taken between two states cannot be trusted; empty if nothing speaks against them.

    Args:
        others: Cores that other processes kept busy meanwhile; None if unknown.
        before: Before timing.
        after: Right after timing, while the clock still shows the load.
    """
    reasons: list[str] = []
    if others is not None and others > BUSY_CORES:
        reasons.append(f"machine busy: other processes used {others:.2f} cores")
    if after.frequency_ratio is not None and after.frequency_ratio < THROTTLED_FREQUENCY:
        reasons.append(f"clock low after timing: {after.frequency_ratio:.0%} of the highest")
    heat = [state.hottest_c for state in (before, after) if state.hottest_c is not None]
    if heat and max(heat) > HOT_C:
        reasons.append(f"hot: a thermal zone at {max(heat):.0f} degrees C")
    return reasons


def wait_for_quiet(timeout_s: float, *, sample_s: float = 0.5) -> bool:
    """Wait until other processes leave the machine alone.

    Args:
        timeout_s: Longest wait in seconds.
        sample_s: How long each look lasts.

    Returns:
        True when it is quiet, False if it did not become so in time.
    """
    end = time.monotonic() + timeout_s
    while True:
        before = read_clock()
        time.sleep(sample_s)
        state = read_state()
        if not disturbances(others_cores(before, read_clock()), state, State(None, None, state.hottest_c)):
            return True
        if time.monotonic() > end:
            return False


def resident_mb() -> float:
    """Resident memory of this process now, in MiB."""
    return psutil.Process().memory_info().rss / _MIB


def reset_peak() -> None:
    """Let the peak that `peak_mb` reports start from now, where the system allows it (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float | None:
    """Highest resident memory of this process since `reset_peak` (Linux) or its start, in MiB."""
    for line in (_read("/proc/self/status") or "").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024.0
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / _MIB if platform.system() == "Darwin" else peak / 1024.0
