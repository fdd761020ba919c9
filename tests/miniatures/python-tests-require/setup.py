from setuptools import setup

tests_require = ["pytest>=7", "mock"]
setup(name="doubled", test_suite="tests", tests_require=tests_require)
