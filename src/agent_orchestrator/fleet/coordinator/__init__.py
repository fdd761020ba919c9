"""The coordinating agent of a project and the digest that it is sent."""
