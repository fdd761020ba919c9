"""What a GraphQL document costs, by GitHub's published rule: one request for each connection that must be read, by hundreds."""

from __future__ import annotations

from typing import Any


def cost_of(document: Any, variables: dict[str, Any], name: str | None) -> tuple[int, int]:
    """Points, and the greatest number of nodes it can bring."""
    from graphql import FragmentDefinitionNode, OperationDefinitionNode, OperationType

    fragments = {one.name.value: one for one in document.definitions if isinstance(one, FragmentDefinitionNode)}
    operations = [one for one in document.definitions if isinstance(one, OperationDefinitionNode)]
    chosen = next((one for one in operations if name and one.name and one.name.value == name), operations[0])
    defaults = {
        given.variable.name.value: value_of(given.default_value, {})
        for given in chosen.variable_definitions or ()
        if given.default_value
    }
    counted = _Count(fragments, {**defaults, **variables})
    counted.walk(chosen.selection_set, 1)
    if chosen.operation is OperationType.MUTATION:
        return max(1, round(counted.requests / 100)), counted.nodes
    return max(1, (counted.requests + 50) // 100), counted.nodes


class _Count:
    def __init__(self, fragments: dict[str, Any], variables: dict[str, Any]) -> None:
        self.fragments, self.variables = fragments, variables
        self.requests = self.nodes = 0

    def walk(self, selection_set: Any, times: int) -> None:
        for selection in selection_set.selections if selection_set else ():
            if not self._included(selection):
                continue
            if selection.kind == "fragment_spread":
                self.walk(self.fragments[selection.name.value].selection_set, times)
            elif selection.kind == "inline_fragment":
                self.walk(selection.selection_set, times)
            else:
                self.walk(selection.selection_set, times * self._field(selection, times))

    def _field(self, selection: Any, times: int) -> int:
        """How many things this field brings, for each of those it is asked of."""
        args = {arg.name.value: value_of(arg.value, self.variables) for arg in selection.arguments or ()}
        size = args.get("first") or args.get("last")
        if isinstance(size, int):
            self.requests += times
            self.nodes += times * size
            return size
        ids = args.get("ids")
        return max(1, len(ids)) if isinstance(ids, list) else 1

    def _included(self, selection: Any) -> bool:
        for directive in selection.directives or ():
            asked = next((value_of(arg.value, self.variables) for arg in directive.arguments or ()), True)
            if (directive.name.value == "skip" and asked) or (directive.name.value == "include" and not asked):
                return False
        return True


def value_of(node: Any, variables: dict[str, Any]) -> Any:
    if node.kind == "variable":
        return variables.get(node.name.value)
    if node.kind == "int_value":
        return int(node.value)
    if node.kind == "list_value":
        return [value_of(one, variables) for one in node.values]
    return getattr(node, "value", None)
