"""What the text of a compiled program (XLA's HLO) tells of one device's work: which operations run,
how often, what they move."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
)
# They move nothing: names for what is there, or what other lines count.
_FREE = frozenset(
    (
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "bitcast",
        "while",
        "conditional",
        "call",
        "after-all",
        "partition-id",
        "opt-barrier",
    )
)
# Of TPUs' compiler, which hands out memory by them.
_FREE_CALLS = ('"AllocateBuffer"', '"ConcatBitcast"')
_BITS = {"pred": 8, "token": 0, "opaque": 0, "c64": 64, "c128": 128}
_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{\s*$")
_LINE = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_CALLS = re.compile(
    r"\b(calls|body|condition|to_apply|true_computation|false_computation)=%?([\w.\-]+)"
)
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_SOURCE = re.compile(r'op_name="([^"]*)"')
# Of a path of scopes: the outermost one of what is differentiated stands in brackets, "jvp(scope)",
# "transpose(jvp(scope))"; of a module's method with a dot.
_DIFFERENTIATED = re.compile(r"(?:transpose\()?jvp\((\w+)\)+")
# What JAX adds: jit(f), jvp(f), loops and their bodies.
_ADDED = re.compile(r"\w*\(.*\)|while|body|cond|closed_call|checkpoint")
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,]*)\](\{[^{}]*\})?")
_ON_CHIP = "S(1)"
"""Of a layout on TPUs: the array stands in the chip's own memory."""


@dataclasses.dataclass(frozen=True)
class Operation:
    name: str
    kind: str
    """Its opcode: "fusion", "all-reduce" ..."""
    types: str
    """Of its results, as they are written: "bf16[8,64]{1,0}"."""
    bytes: int
    """Of its results."""
    stored: int
    """Of them in the device's memory, and not on the chip."""
    operands: tuple[str, ...]
    attributes: str
    """What stands behind the operands."""
    root: bool
    value: str = ""
    """Of a constant, as it is written."""


@dataclasses.dataclass(frozen=True)
class Collective:
    kind: str
    devices: int
    """That take part together."""
    bytes: int
    """Of the whole array on each: what is summed or gathered."""
    times: int

    @property
    def sent(self) -> float:
        """Bytes that leave a device, all times, where devices stand in a ring."""
        n = max(self.devices, 1)
        share = (n - 1) / n
        if self.kind == "all-reduce":
            share *= 2
        if self.kind in ("collective-permute", "collective-broadcast"):
            share = 1.0
        return self.times * self.bytes * share


class Program:
    """The computations of a program, and how often each runs."""

    def __init__(self, text: str):
        partitions = re.search(r"num_partitions=(\d+)", text.partition("\n")[0])
        self._devices = int(partitions[1]) if partitions else 1
        self._of: dict[str, list[Operation]] = {}
        self._entry = ""
        self._read(text)
        self._times: Counter[str] = Counter()
        self._fused: set[str] = set()
        self._follow(self._entry, 1, False)

    def operations(self) -> Iterator[tuple[Operation, int]]:
        """(operation, how often it runs), without what is inside of fusions."""
        for name, times in self._times.items():
            if name not in self._fused:
                for operation in self._of[name]:
                    yield operation, times

    def collectives(self) -> list[Collective]:
        found = []
        for name, times in self._times.items():
            here = {one.name: one for one in self._of[name]}
            for operation in self._of[name]:
                kind = operation.kind.removesuffix("-start")
                if kind not in COLLECTIVES:
                    continue
                size = sum(here[operand].bytes for operand in operation.operands if operand in here)
                devices = _devices(operation.attributes, self._devices)
                if kind == "all-gather":
                    size *= devices
                found.append(Collective(kind, devices, size, times))
        return found

    def moved_bytes(self) -> int:
        """To and from memory, if every result is written once and read once. An estimate: results
        may be read more often, or stand in a cache."""
        total = 0
        for name, times in self._times.items():
            if name in self._fused:
                continue
            here = {one.name: one for one in self._of[name]}
            for operation in self._of[name]:
                total += 2 * self._written(operation, here) * times
        return total

    def estimated_cycles(self) -> int:
        """The compiler's own estimate (TPU); 0: it says none."""
        total = 0
        for operation, times in self.operations():
            if found := _CYCLES.search(operation.attributes):
                total += int(found[1]) * times
        return total

    def cycles_by_source(self) -> Counter[str]:
        """{what of the traced program an operation is of: estimated cycles}. Of a fusion it is what
        its result is of: "backward ffn/in/dot_general" has sums and products beside it."""
        cycles: Counter[str] = Counter()
        for operation, times in self.operations():
            if found := _CYCLES.search(operation.attributes):
                source = _SOURCE.search(operation.attributes)
                name = operation.kind
                if source:
                    name = source_name(source[1])
                cycles[name] += int(found[1]) * times
        return cycles

    def _written(self, operation: Operation, here: Mapping[str, Operation]) -> int:
        """Bytes. here: the operations of its computation."""
        if operation.kind in _FREE or operation.kind.endswith("-done"):
            return 0
        if any(target in operation.attributes for target in _FREE_CALLS):
            return 0
        if operation.kind.endswith("-start"):
            # Its results are what it reads, too, and marks of its progress.
            read = (here[one] for one in operation.operands if one in here)
            return max(operation.stored - sum(one.stored for one in read), 0)
        if operation.kind == "fusion":
            called = re.search(r"calls=%?([\w.\-]+)", operation.attributes)
            here = {}
            if called:
                here = {one.name: one for one in self._of.get(called[1], ())}
            for root in here.values():
                if root.root:
                    return min(_updated(root, here), operation.stored)
        return min(_updated(operation, here), operation.stored)

    def _read(self, text: str) -> None:
        here: list[Operation] | None = None
        for line in text.splitlines():
            if header := _HEADER.match(line):
                here = self._of.setdefault(header[2], [])
                if header[1]:
                    self._entry = header[2]
            elif line.startswith("}"):
                here = None
            elif here is not None and (found := _LINE.match(line)):
                here.append(_operation(found, line))

    def _follow(self, name: str, times: int, fused: bool) -> None:
        if name not in self._of:
            return
        self._times[name] += times
        if fused:
            self._fused.add(name)
        for one in self._of[name]:
            trips = 1
            if one.kind == "while":
                trips = self._trips(one)
            for how, called in _CALLS.findall(one.attributes):
                # Of a reduction: it is applied to each number.
                if how == "to_apply" and one.kind != "call":
                    continue
                inside = fused or one.kind == "fusion"
                self._follow(called, times * trips, inside)
            if branches := _BRANCHES.search(one.attributes):
                for called in re.findall(r"[\w.\-]+", branches[1]):
                    self._follow(called, times, fused)

    def _trips(self, loop: Operation) -> int:
        """How often a loop turns; 1 where only running it would tell (a decoder's)."""
        if said := _TRIPS.search(loop.attributes):
            return int(said[1])
        # TPUs' compiler does not say it: a counter goes from 0, while it is below a number.
        condition = self._called(loop, "condition")
        for one in condition.values():
            if not one.root or "direction=LT" not in one.attributes:
                continue
            counter, limit = (condition.get(name) for name in one.operands)
            if counter is None or limit is None or not limit.value.isdecimal():
                return 1
            return -(-int(limit.value) // self._step(loop, counter))
        return 1

    def _step(self, loop: Operation, counter: Operation) -> int:
        """What a turn of a loop adds to its counter; 1 where it is not seen."""
        body = self._called(loop, "body")
        index = re.search(r"index=(\d+)", counter.attributes)
        roots = [one for one in body.values() if one.root]
        if index is None or not roots:
            return 1
        made = body.get(roots[0].operands[int(index[1])])
        if made is None or made.kind != "add":
            return 1
        added = [body[name].value for name in made.operands if name in body]
        numbers = [int(value) for value in added if value.isdecimal()]
        return max([1, *numbers])

    def _called(self, loop: Operation, how: str) -> dict[str, Operation]:
        """The operations of its condition or body."""
        found = re.search(rf"{how}=%?([\w.\-]+)", loop.attributes)
        if found is None:
            return {}
        return {one.name: one for one in self._of.get(found[1], ())}


def source_name(path: str) -> str:
    """ "backward ffn/in/dot_general" of an operation's path of scopes; the last three of them."""
    bare = _DIFFERENTIATED.sub(r"\1", path)
    parts = [part for part in bare.split("/") if not _ADDED.fullmatch(part)]
    name = "/".join(parts[-3:])
    if "transpose(" in path:
        return f"backward {name}"
    if "jvp(" in path:
        return f"forward {name}"
    return name


def _updated(operation: Operation, here: Mapping[str, Operation]) -> int:
    """Bytes that an operation writes: of an update in place, and of several, their parts alone."""
    if operation.kind in ("bitcast", "copy-done") and operation.operands:
        inner = here.get(operation.operands[0])
        if inner is not None and inner.kind != "parameter":
            return _updated(inner, here)
    if operation.kind == "tuple":
        parts = (here[one] for one in operation.operands if one in here)
        return sum(_updated(one, here) for one in parts)
    if operation.kind == "dynamic-update-slice":
        part = here.get(operation.operands[1])
        if part is not None:
            return part.bytes
    return operation.bytes


def _operation(found: re.Match, line: str) -> Operation:
    rest = line[found.end() :]
    # The type of its results: of several in brackets.
    end = rest.find(" ")
    if rest.startswith("("):
        end = _closing(rest, 0) + 1
    kind, _, _ = rest[end:].strip().partition("(")
    begin = rest.find("(", end)
    close = _closing(rest, begin)
    value = ""
    if kind == "constant":
        value = rest[begin + 1 : close]
    return Operation(
        name=found[2],
        kind=kind,
        types=rest[:end],
        bytes=_bytes(rest[:end]),
        stored=_bytes(rest[:end], stored=True),
        operands=tuple(re.findall(r"%([\w.\-]+)", rest[begin:close])),
        attributes=rest[close + 1 :],
        root=bool(found[1]),
        value=value,
    )


def _closing(text: str, start: int) -> int:
    """The bracket that closes the one at `start`."""
    depth = 0
    for found in re.compile(r"[()]").finditer(text, start):
        depth += 1 if found[0] == "(" else -1
        if not depth:
            return found.start()
    return len(text)


def _bytes(types: str, stored: bool = False) -> int:
    total = 0
    for dtype, dims, layout in _ARRAY.findall(types):
        if stored and _ON_CHIP in layout:
            continue
        count = math.prod(int(n) for n in dims.split(",") if n)
        total += count * _bits(dtype) // 8
    return total


def _bits(dtype: str) -> int:
    if dtype in _BITS:
        return _BITS[dtype]
    found = re.search(r"\d+", dtype)
    if found is None:
        return 0
    return int(found[0])


def _devices(attributes: str, all_of_them: int) -> int:
    """Of one group."""
    if "replica_groups={}" in attributes:
        return all_of_them
    # mesh['a'=2,'b'=4] {'b'}, {{0,1},{2,3}}, or [groups, devices of one]<=[...].
    if found := re.search(r"replica_groups=mesh\[(.*?)\]\s*\{(.*?)\}", attributes):
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", found[1]))
        # Of a part of an axis, 'a':(2)4, the part.
        axes = re.findall(r"'([^']+)'(?::\(\d+\)(\d+))?", found[2])
        return math.prod(int(part or sizes[name]) for name, part in axes)
    if found := re.search(r"replica_groups=\{\{([\d,]*)\}", attributes):
        return len(found[1].split(","))
    if found := re.search(r"replica_groups=\[\d+,(\d+)\]", attributes):
        return int(found[1])
    if found := re.search(r"source_target_pairs=\{(.*?)\}\}", attributes):
        return found[1].count("{")
    return 1


def by_kind(collectives: list[Collective]) -> Mapping[str, Counter[str]]:
    """{kind: {"count": how many run, "bytes": of them, "sent": that leave a device}}."""
    found: dict[str, Counter[str]] = {}
    for one in collectives:
        counted = found.setdefault(one.kind, Counter())
        counted["count"] += one.times
        counted["bytes"] += one.times * one.bytes
        counted["sent"] += int(one.sent)
    return found
