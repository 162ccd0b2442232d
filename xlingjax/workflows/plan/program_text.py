"""What the text of a compiled program (XLA's HLO) tells of one device's work and `cost_analysis`
does not, which counts a loop once: how often its operations run, what they send and move."""

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
    [
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
    ]
)
# Of TPUs' compiler, which hands out memory by them.
_FREE_CALLS = ('"AllocateBuffer"', '"ConcatBitcast"')
_BITS = {"pred": 8, "token": 0, "opaque": 0, "c64": 64, "c128": 128}
_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{\s*$")
_OPERATION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\(([^)]*)\)(.*)$")
_CALLS = re.compile(r"\b(calls|body|condition|to_apply|\w+_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
# Of a layout "S(1)": the array stands in a TPU's own memory, on the chip.
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,]*)\](\{[^{}]*S\(1\)[^{}]*\})?")


@dataclasses.dataclass(frozen=True)
class Operation:
    kind: str
    """Its opcode: "fusion", "all-reduce" ..."""
    types: str
    """Of its results, as they are written: "bf16[8,64]{1,0}"."""
    operands: tuple[str, ...]
    """Their names; of a constant its value."""
    attributes: str
    """What stands behind the operands."""
    is_root: bool

    @property
    def bytes(self) -> int:
        """Of its results."""
        return sum(size for size, _ in _arrays(self.types))

    @property
    def stored(self) -> int:
        """Of them in the device's memory, and not on the chip."""
        return sum(size for size, on_chip in _arrays(self.types) if not on_chip)


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
        share = 1 - 1 / max(self.devices, 1)
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
        self._computations: dict[str, dict[str, Operation]] = {}
        self._times: Counter[str] = Counter()
        self._fused: set[str] = set()
        entry = ""
        operations: dict[str, Operation] = {}
        for line in text.splitlines():
            if header := _HEADER.match(line):
                operations = self._computations.setdefault(header[2], {})
                if header[1]:
                    entry = header[2]
            elif found := _OPERATION.match(line):
                root, name, types, kind, operands, attributes = found.groups()
                names = tuple(re.findall(r"[\w.\-]+", operands))
                operations[name] = Operation(kind, types, names, attributes, bool(root))
        self._follow(entry, 1, False)

    def operations(self) -> Iterator[tuple[Operation, Mapping[str, Operation], int]]:
        """(operation, those of its computation, how often it runs), without what is inside of
        fusions."""
        for name, times in self._times.items():
            if name not in self._fused:
                computation = self._computations[name]
                for operation in computation.values():
                    yield operation, computation, times

    def collectives(self) -> list[Collective]:
        found = []
        for operation, computation, times in self.operations():
            kind = operation.kind.removesuffix("-start")
            if kind not in COLLECTIVES:
                continue
            size = sum(computation[one].bytes for one in operation.operands if one in computation)
            devices = _devices(operation.attributes, self._devices)
            if kind == "all-gather":
                size *= devices
            found.append(Collective(kind, devices, size, times))
        return found

    def moved_bytes(self) -> int:
        """To and from memory, if every result is written once and read once. An estimate: results
        may be read more often, or stand in a cache."""
        return sum(2 * self._written(one, of) * times for one, of, times in self.operations())

    def estimated_cycles(self) -> int:
        """The compiler's own estimate (TPU); 0: it says none."""
        total = 0
        for operation, _, times in self.operations():
            if found := re.search(r'"estimated_cycles":"(\d+)"', operation.attributes):
                total += int(found[1]) * times
        return total

    def _written(self, operation: Operation, computation: Mapping[str, Operation]) -> int:
        """Bytes."""
        if operation.kind in _FREE or operation.kind.endswith("-done"):
            return 0
        if any(target in operation.attributes for target in _FREE_CALLS):
            return 0
        stored = operation.stored
        if operation.kind.endswith("-start"):
            # Its results are what it reads, too, and marks of its progress.
            read = (computation[one] for one in operation.operands if one in computation)
            return max(stored - sum(one.stored for one in read), 0)
        if operation.kind == "fusion":
            computation = self._called(operation, "calls")
            operation = _root(computation) or operation
        return min(_updated(operation, computation), stored)

    def _follow(self, name: str, times: int, fused: bool) -> None:
        """Counts what a computation calls, and itself."""
        if name not in self._computations:
            return
        self._times[name] += times
        if fused:
            self._fused.add(name)
        for one in self._computations[name].values():
            trips = self._trips(one) if one.kind == "while" else 1
            for how, called in _CALLS.findall(one.attributes):
                # Of a reduction: it is applied to each number.
                if how != "to_apply" or one.kind == "call":
                    self._follow(called, times * trips, fused or one.kind == "fusion")
            if branches := _BRANCHES.search(one.attributes):
                for called in re.findall(r"[\w.\-]+", branches[1]):
                    self._follow(called, times, fused)

    def _trips(self, loop: Operation) -> int:
        """How often a loop turns; 1 where only running it would tell (a decoder's)."""
        if known := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.attributes):
            return int(known[1])
        # TPUs' compiler does not say it: a counter goes from 0, while it is below a number.
        condition = self._called(loop, "condition")
        test = _root(condition)
        if test is None or "direction=LT" not in test.attributes:
            return 1
        counter, limit = (condition.get(name) for name in test.operands)
        if counter is None or limit is None or limit.kind != "constant":
            return 1
        return -(-int(limit.operands[0]) // self._step(loop, counter))

    def _step(self, loop: Operation, counter: Operation) -> int:
        """What a turn of a loop adds to its counter; 1 where it is not seen."""
        body = self._called(loop, "body")
        root = _root(body)
        index = re.search(r"index=(\d+)", counter.attributes)
        if root is None or index is None:
            return 1
        made = body.get(root.operands[int(index[1])])
        if made is None or made.kind != "add":
            return 1
        added = [body[name] for name in made.operands if name in body]
        numbers = [int(one.operands[0]) for one in added if one.kind == "constant"]
        return max([1, *numbers])

    def _called(self, operation: Operation, how: str) -> Mapping[str, Operation]:
        """The operations of what it calls so."""
        return self._computations.get(dict(_CALLS.findall(operation.attributes)).get(how, ""), {})


def _root(computation: Mapping[str, Operation]) -> Operation | None:
    return next((one for one in computation.values() if one.is_root), None)


def _updated(operation: Operation, computation: Mapping[str, Operation]) -> int:
    """Bytes that an operation writes: of an update in place, and of several, their parts alone."""
    read = [computation[one] for one in operation.operands if one in computation]
    if operation.kind in ("bitcast", "copy-done") and read and read[0].kind != "parameter":
        return _updated(read[0], computation)
    if operation.kind == "tuple":
        return sum(_updated(one, computation) for one in read)
    if operation.kind == "dynamic-update-slice" and len(read) > 1:
        return read[1].bytes
    return operation.bytes


def _arrays(types: str) -> Iterator[tuple[int, bool]]:
    """(bytes, whether it stands on the chip) of each array."""
    for dtype, dims, on_chip in _ARRAY.findall(types):
        bits = _BITS.get(dtype)
        if bits is None:
            width = re.search(r"\d+", dtype)
            bits = int(width[0]) if width else 0
        yield math.prod(int(n) for n in dims.split(",") if n) * bits // 8, bool(on_chip)


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
        counted.update({"count": one.times, "bytes": one.times * one.bytes, "sent": int(one.sent)})
    return found
