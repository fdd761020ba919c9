"""The cost of a GraphQL document by GitHub's published rule: one request per connection to read, divided by 100."""

from __future__ import annotations

from typing import Any


def cost_of(document: Any, variables: dict[str, Any], name: str | None) -> tuple[int, int]:
    """Return the points and the maximum number of nodes of a document."""
    from graphql import FragmentDefinitionNode, OperationDefinitionNode, OperationType

    fragments = {
        definition.name.value: definition
        for definition in document.definitions
        if isinstance(definition, FragmentDefinitionNode)
    }
    operations = [definition for definition in document.definitions if isinstance(definition, OperationDefinitionNode)]
    chosen = next(
        (definition for definition in operations if name and definition.name and definition.name.value == name),
        operations[0],
    )
    defaults = {
        variable_definition.variable.name.value: value_of(variable_definition.default_value, {})
        for variable_definition in chosen.variable_definitions or ()
        if variable_definition.default_value
    }
    count = _CostCounter(fragments, {**defaults, **variables})
    count.walk(chosen.selection_set, 1)
    if chosen.operation is OperationType.MUTATION:
        return max(1, round(count.requests / 100)), count.nodes
    return max(1, (count.requests + 50) // 100), count.nodes


class _CostCounter:
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
        """Return the maximum number of items of this field per parent, and count its requests."""
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
            condition = next((value_of(arg.value, self.variables) for arg in directive.arguments or ()), True)
            if (directive.name.value == "skip" and condition) or (directive.name.value == "include" and not condition):
                return False
        return True


def value_of(node: Any, variables: dict[str, Any]) -> Any:
    if node.kind == "variable":
        return variables.get(node.name.value)
    if node.kind == "int_value":
        return int(node.value)
    if node.kind == "list_value":
        return [value_of(item, variables) for item in node.values]
    return getattr(node, "value", None)
