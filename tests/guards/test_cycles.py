"""No module imports itself by way of others, inside functions or not; imports for type checkers alone do not count."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def read_modules() -> dict[str, Path]:
    """Return the file of each module by its dotted name."""
    modules = {}
    for path in sorted(SOURCE.rglob("*.py")):
        *folders, stem = path.relative_to(SOURCE).with_suffix("").parts
        modules[".".join(folders if stem == "__init__" else [*folders, stem])] = path
    return modules


def import_statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports below a node, but for those that only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            yield from import_statements(ast.Module(child.orelse, []))
        else:
            yield from import_statements(child)


def imported_modules(name: str, path: Path, modules: dict[str, Path]) -> set[str]:
    """Return the modules of ours that a module imports."""
    imported = set()
    for statement in import_statements(ast.parse(path.read_bytes())):
        if isinstance(statement, ast.Import):
            imported |= {alias.name for alias in statement.names}
        else:
            package = name if path.stem == "__init__" else name.rpartition(".")[0]
            origin = statement.module or ""
            if statement.level:
                origin = ".".join([*package.split(".")[: len(package.split(".")) - statement.level + 1], origin])
            submodules = {f"{origin}.{alias.name}" for alias in statement.names}
            imported |= submodules & modules.keys() or {origin}
    return (imported & modules.keys()) - {name}


def test_no_module_imports_itself_by_way_of_others() -> None:
    modules = read_modules()
    assert len(modules) > 500, "the modules were not found"
    graph = {name: imported_modules(name, path, modules) for name, path in modules.items()}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle
