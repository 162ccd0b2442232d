"""What `xlingjax plan` prints of a plan."""

from collections.abc import Mapping
from typing import Any

from xlingjax.workflows.plan import Bound, Planned


def _bytes(size: float) -> str:
    for unit, of in (("GB", 1e9), ("MB", 1e6)):
        if size >= 0.1 * of:
            return f"{size / of:.2f} {unit}"
    return f"{size / 1e3:.1f} kB"


def _sizes(sizes: Mapping[str, float]) -> str:
    return ", ".join(f"{what} {_bytes(size)}" for what, size in sizes.items())


def said(options: Mapping[str, bool]) -> str:
    """Of the compiler, as XLA_FLAGS takes them: "xla_gpu_enable_triton_gemm=false"."""
    return ", ".join(f"{name}={str(value).lower()}" for name, value in options.items())


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def text_of(plan: Planned) -> str:
    """A paragraph for each program, and one for the run."""
    mesh = " x ".join(f"{axis} {size}" for axis, size in plan.mesh.items())
    lines = [
        f"{plan.machine}: {plan.devices} devices, mesh {mesh}, {plan.dtype};"
        f" programs may fill {_bytes(plan.room)} of each"
    ]
    for program, bound in zip(plan.programs, plan.bounds, strict=True):
        lines += ["", *_of_program(plan, program, bound)]
    return "\n".join([*lines, "", *_of_run(plan)])


def _of_program(plan: Planned, program: dict[str, Any], bound: Bound | None) -> list[str]:
    name = program["program"]
    compiled = f"compiled in {program['seconds']:.0f} s"
    if program["error"] and "peak" not in program:
        return [f"{name}: REFUSED by the compiler: {program['error']}"]
    fits = "fits"
    if not plan.fits(program):
        fits = "DOES NOT FIT"
    if options := program.get("options"):
        compiled += f", {said(options)}"
    lines = [f"{name}: {fits}: {_bytes(program['peak'])} of {_bytes(plan.room)} ({compiled})"]
    sizes = dict(program["bytes"])
    if not program["error"]:
        sizes["temporaries"] = program["temporaries"]
        lines.append(f"  on a device: {_sizes(sizes)}")
    if estimated := program.get("estimated"):
        total = sum(estimated.values())
        lines.append(f"  estimated before compiling: {_bytes(total)}: {_sizes(estimated)}")
    if flops := program.get("flops"):
        lines.append(f"  {_flops(flops)}")
    if program.get("collectives"):
        lines.append(f"  sent: {_collectives(program)}")
    if bound is not None:
        times = (
            f"matrix units {_ms(bound.matrix)}, memory {_ms(bound.memory)},"
            f" links {_ms(bound.links)}"
        )
        lines.append(f"  at the published peaks: {times}")
    if program.get("cycles"):
        lines.append(f"  the compiler's estimate: {program['cycles'] / 1e6:,.1f} million cycles")
    return lines


def _flops(flops: dict[str, Any]) -> str:
    computed = flops["computed"]
    useful = flops.get("useful")
    said = f"TFLOP of a device: {computed / 1e12:.2f} in matrix products"
    if useful is None:
        return said
    return f"{said}, {useful / 1e12:.2f} of them useful ({useful / computed:.0%})"


def _collectives(program: dict[str, Any]) -> str:
    parts = []
    for kind, found in program["collectives"].items():
        parts.append(f"{found['count']} {kind} of {_bytes(found['bytes'])}")
    return f"{', '.join(parts)}: {_bytes(program['sent'])} leave a device"


def _of_run(plan: Planned) -> list[str]:
    if any(one["error"] and "peak" not in one for one in plan.programs):
        return ["the run cannot be compiled"]
    if not plan.all_fit:
        return ["the run does not fit: --search looks for settings that do"]
    seconds = plan.seconds
    if not seconds:
        return [f"no bound of its speed: peaks of {plan.machine} in {plan.dtype} are not known"]
    return [
        f"the run: {plan.steps:,} steps, {plan.tokens:,.0f} tokens; at the longest of the three"
        f" {plan.tokens / seconds:,.0f} tokens/s: {_time(seconds)},"
        f" {seconds * plan.devices / 3600:,.1f} device-hours"
    ]


def _time(seconds: float) -> str:
    if seconds < 2 * 3600:
        return f"{seconds / 60:.1f} minutes"
    if seconds < 2 * 86400:
        return f"{seconds / 3600:.1f} hours"
    return f"{seconds / 86400:.1f} days"
