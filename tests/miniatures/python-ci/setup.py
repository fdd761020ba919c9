from setuptools import setup

setup(name="doubled", extras_require={"check": ["attrs"], "docs": ["sphinx"]})
