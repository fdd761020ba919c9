import unittest

if __name__ == "__main__":
    unittest.main("tests.test_double")
