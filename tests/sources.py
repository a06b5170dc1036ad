"""Python sources, each parsed once for all tests of the house."""

import ast
import functools


@functools.cache
def tree_of(path):
    """The syntax tree of a file."""
    return ast.parse(path.read_text())


@functools.cache
def nodes_of(path):
    """All nodes of a file's tree."""
    return tuple(ast.walk(tree_of(path)))


def statements(path):
    """Count the statements of a file, without docstrings."""
    found = [node for node in nodes_of(path) if isinstance(node, ast.stmt)]
    texts = [node for node in found if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return len(found) - sum(isinstance(node.value.value, str) for node in texts)
