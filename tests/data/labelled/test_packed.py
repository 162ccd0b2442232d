import numpy as np

from xlingjax.data.labelled.packed import PackedExamples, pack
from xlingjax.data.labelled.records import Example

FIRST = [
    Example("Der Hund", "schläft 🐕", "x"),
    Example("", None, None),
    Example("b\tc\n", "", "yy"),
]


def test_examples_come_back_in_any_order_alone_and_beside_others():
    packed = PackedExamples(pack([FIRST]), 1)
    assert len(packed) == 3 and packed.take(np.array([2, 0, 1, 2])) == [
        [FIRST[2], FIRST[0], FIRST[1], FIRST[2]]
    ]
    assert packed.sizes.tolist() == [8 + 13, 0, 4]
    beside = [Example(one.premise + "!", "t", one.label) for one in FIRST]
    packed = PackedExamples(pack([FIRST, beside]), 2)
    assert len(packed) == 3 and packed.take(np.array([1, 2])) == [FIRST[1:], beside[1:]]
    # Bytes of the longer of the two.
    assert packed.sizes.tolist() == [21, 2, 6]
