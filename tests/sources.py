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
