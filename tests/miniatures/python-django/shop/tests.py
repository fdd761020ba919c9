from django.test import TestCase


class Double(TestCase):
    def test_double(self):
        self.assertEqual(2 * 2, 4)
