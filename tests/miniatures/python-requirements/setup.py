from setuptools import setup

setup(name="doubled", version="1.0")
