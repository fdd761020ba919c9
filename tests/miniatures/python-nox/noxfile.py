import nox


@nox.session
def docs(session):
    session.install("sphinx")
    session.run("sphinx-build", "docs", "out")


@nox.session(python=["3.10", "3.14"])
def tests(session: nox.Session) -> None:
    session.install("-e.", "pytest", "attrs>=22")
    session.run("pytest", "-n", "2", "tests", *session.posargs)
