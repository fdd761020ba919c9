"""One test suite per slot that every plugin of the slot must pass. Subclass it to run it.

A suite uses only the slot's protocol and the real machine; it knows no particular plugin.
"""

import pkgutil

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))
