"""What the kernels of a compiled program read and write, by part of the step, read off the text of
the optimised program (HLO): the same figures at every compilation."""

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence

PARTS = (
    "between the layers' products",
    "layers' products",
    "attention",
    "vocabulary",
    "optimizer and norm",
    "embeddings, casts",
)
# What is no kernel: it names a buffer, or lies in it already.
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"}
_FREE |= {"partition-id", "replica-id"}
_ENDS = {"-done", "-update"}  # of what was counted where it starts
_PROJECTIONS = ("query", "key", "value", "out")


@dataclasses.dataclass
class Moved:
    """Of some kernels of one device: bytes read and written, how many there are."""

    bytes: float = 0
    kernels: float = 0


@dataclasses.dataclass(frozen=True)
class _Instruction:
    name: str
    shape: str  # "bf16[16,512]{1,0}", or several in parentheses
    opcode: str
    operands: Sequence[str]
    attributes: str
    is_root: bool

    @property
    def size(self) -> int:
        return _bytes_of(self.shape)

    def called(self, attribute: str) -> str:
        """The computation that an attribute names; "": none."""
        found = re.search(rf"\b{attribute}=%?([\w.-]+)", self.attributes)
        return found[1] if found else ""

    @property
    def scope(self) -> str:
        """Where in the code it comes from: "jit(run)/jvp(vocabulary)/dot_general"."""
        found = re.search(r'op_name="([^"]*)"', self.attributes)
        return found[1] if found else ""


_Computation = dict[str, _Instruction]


def traffic(text: str) -> dict[str, Moved]:
    """{part of `PARTS`: what its kernels move}. text: `jax.stages.Compiled.as_text()` of a program
    for GPUs. Slices, gathers and updates in place count as what they touch, the body of a loop as
    often as it runs."""
    computations, entry = _parsed(text)
    found = {part: Moved() for part in PARTS}
    _walk(computations, entry, 1, found)
    return found


def _walk(
    computations: dict[str, _Computation], name: str, times: float, found: dict[str, Moved]
) -> None:
    here = computations[name]
    for one in here.values():
        if one.opcode in _FREE or any(map(one.opcode.endswith, _ENDS)):
            continue
        if one.opcode == "while":
            trips = re.search(r'known_trip_count":\{"n":"(\d+)"', one.attributes)
            _walk(computations, one.called("body"), times * int(trips[1] if trips else 1), found)
        elif one.opcode in ("call", "async-start"):
            _walk(computations, one.called("to_apply") or one.called("calls"), times, found)
        elif one.opcode == "conditional":
            given = r"(?:branch_computations=\{[^}]*|(?:true|false)_computation=[^,]*)"
            listed = " ".join(re.findall(given, one.attributes))
            branches = re.findall(r"%([\w.-]+)", listed)
            # Which one runs is not known here: each as often as the others.
            for branch in branches:
                _walk(computations, branch, times / len(branches), found)
        else:
            inside = computations.get(one.called("calls"), {}) if one.opcode == "fusion" else {}
            moved = found[_part(one, inside)]
            moved.kernels += times
            moved.bytes += times * sum(_touched(one, here, inside))


def _part(one: _Instruction, inside: _Computation) -> str:
    scope = one.scope
    if "optimizer" in scope or "gradient_norm" in scope:
        return "optimizer and norm"
    if re.search(r"\b(vocabulary|head)\b", scope):
        return "vocabulary"
    below = re.search(r"/attention/(\w+)", scope)
    if below and below[1] not in _PROJECTIONS:
        return "attention"
    if re.search(r"\b(encoder|decoder)\b", scope):
        products = any(each.opcode in ("dot", "convolution") for each in inside.values())
        products |= one.opcode in ("dot", "custom-call")
        return "layers' products" if products else "between the layers' products"
    return "embeddings, casts"


def _touched(one: _Instruction, here: _Computation, inside: _Computation) -> Iterator[int]:
    """Bytes of each operand that it reads, and of each result that it writes."""
    if inside:
        parameters = {
            int(each.operands[0]): each for each in inside.values() if each.opcode == "parameter"
        }
        for number in range(len(one.operands)):
            yield _read(parameters[number], inside)
        (root,) = (each for each in inside.values() if each.is_root)
        ends = [inside[name] for name in root.operands] if root.opcode == "tuple" else [root]
        yield from (_written(end, inside) for end in ends)
    elif one.opcode in ("dynamic-slice", "slice", "gather"):
        yield 2 * one.size
    elif one.opcode == "dynamic-update-slice":
        yield 2 * here[one.operands[1]].size
    else:
        yield from (here[name].size for name in one.operands)
        yield one.size


def _read(value: _Instruction, inside: _Computation) -> int:
    """Bytes of a value that those who use it touch; at most all of them."""
    total = 0
    for user in inside.values():
        if value.name not in user.operands:
            continue
        if user.opcode == "bitcast":
            total += _read(user, inside)
        elif user.opcode in ("dynamic-slice", "slice", "gather") and user.operands[0] == value.name:
            total += user.size
        elif user.opcode == "dynamic-update-slice" and user.operands[0] == value.name:
            # What is not replaced stays where it is.
            continue
        else:
            return value.size
    return min(total, value.size)


def _written(end: _Instruction, inside: _Computation) -> int:
    while end.opcode == "bitcast":
        end = inside[end.operands[0]]
    if end.opcode == "dynamic-update-slice":
        return inside[end.operands[1]].size
    if end.opcode == "parameter":
        return 0
    return end.size


def _bytes_of(shape: str) -> int:
    total = 0
    for kind, sides in re.findall(r"\b([a-z]+\d*[a-z\d]*)\[([\d,]*)\]", shape):
        width = re.search(r"\d+", kind)  # of "pred", which has none, 8 bits
        count = math.prod(map(int, filter(None, sides.split(","))))
        total += count * (int(width[0]) if width else 8) // 8
    return total


def _parsed(text: str) -> tuple[dict[str, _Computation], str]:
    """({computation: {instruction: itself}}, the name of the program's own)."""
    computations: dict[str, _Computation] = {}
    entry, here = "", None
    for line in text.splitlines():
        if begins := re.match(r"(ENTRY )?%?([\w.-]+) \(.*\{$", line):
            here = computations[begins[2]] = {}
            if begins[1]:
                entry = begins[2]
        elif here is not None and (one := _instruction(line)):
            here[one.name] = one
    return computations, entry


def _instruction(line: str) -> _Instruction | None:
    begins = re.match(r"\s+(ROOT )?%?([\w.-]+) = ", line)
    if not begins:
        return None
    rest = line[begins.end() :]
    end = _closing(rest) if rest.startswith("(") else rest.index(" ")
    shape, rest = rest[:end], rest[end + 1 :]
    opcode, _, _ = rest.partition("(")
    given = rest[len(opcode) :]
    end = _closing(given)
    inner = given[1 : end - 1]
    operands = [inner] if opcode == "parameter" else re.findall(r"%([\w.-]+)", inner)
    return _Instruction(begins[2], shape, opcode, operands, given[end:], bool(begins[1]))


def _closing(text: str) -> int:
    """Behind the parenthesis that closes the one that the text begins with."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return place + 1
    raise ValueError(f"no closing parenthesis: {text:.80}")
