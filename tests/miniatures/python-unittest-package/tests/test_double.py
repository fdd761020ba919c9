import unittest


class Double(unittest.TestCase):
    def test_double(self):
        self.assertEqual(2 * 2, 4)
