from setuptools import setup

setup(name="shop", version="1", packages=["shop"], install_requires=["django"])
