"""One suite a slot that says what a plugin must do, run by subclassing it: ours, and any stranger's by one import.

A suite uses only the slot's protocol and the real machine; nothing in here knows a certain plugin.
"""

import pkgutil

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))
