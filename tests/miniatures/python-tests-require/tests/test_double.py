def test_double():
    assert 2 * 2 == 4
