import pytest
from hypothesis import given


def test_more(mocker):
    assert given
