"""Where options end: the last value that is taken, the first that is refused."""

import pytest

from xlingjax.errors import UserError


def allowed(kind, options):
    made = kind(**options)
    assert {name: getattr(made, name) for name in options} == options


def refused(kind, options, message):
    with pytest.raises(UserError, match=message):
        kind(**options)
