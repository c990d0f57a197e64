"""Which code made a saved step, so that a plan can say whether it has changed since.

A step is known by the function it was given: the file, the qualified name, and a digest of the function's text with
that of everything at the top of the same file that it names, and so on. Comments, docstrings and layout do not count.
What a function reaches in another way (other files, attributes, variables of the function around it) is not seen.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class StepCode:
    """The code of the functions of a pipeline's folder, read once. ``folder`` is that of the pipeline file.

    Functions of installed packages, builtins and the like have no code of the user's: they give None.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, _File | None] = {}
        self._known: dict[Any, str | None] = {}

    def of(self, fn: Callable[..., Any]) -> str | None:
        """Return what is saved with a step: file below the folder, qualified name and digest, a blank between."""
        while isinstance(fn, functools.partial):
            fn = fn.func
        code = getattr(getattr(fn, "__func__", fn), "__code__", None)
        if code is None:
            return None
        if code not in self._known:
            self._known[code] = self._describe(code)
        return self._known[code]

    def has_changed(self, saved: str) -> bool:
        """Tell whether the code of a saved step is another now; one that is gone is another."""
        place, _, digest = saved.rpartition(" ")
        name, _, qualname = place.partition(" ")
        file = self._file(name)
        return file is None or digest not in file.digests(qualname)

    def _describe(self, code: Any) -> str | None:
        path = Path(code.co_filename)
        if not path.is_relative_to(self._folder):
            return None
        name = path.relative_to(self._folder).as_posix()
        file = self._file(name)
        digest = file.digest_at(code.co_qualname, code.co_firstlineno) if file else None
        return None if digest is None else f"{name} {code.co_qualname} {digest}"

    def _file(self, name: str) -> _File | None:
        if name not in self._files:
            try:
                self._files[name] = _File((self._folder / name).read_bytes())
            except (OSError, SyntaxError, ValueError):
                self._files[name] = None
        return self._files[name]


class _File:
    """One source file, parsed."""

    def __init__(self, source: bytes) -> None:
        tree = _without_docstrings(ast.parse(source))
        self._top: dict[str, ast.stmt] = {}
        for statement in tree.body:
            for name in _names_defined(statement):
                self._top[name] = statement
        self._functions: dict[str, list[_Function]] = {}
        for qualname, node in _functions(tree, ""):
            self._functions.setdefault(qualname, []).append(node)

    def digests(self, qualname: str) -> set[str]:
        """Return the digests of all functions of this name: lambdas share one."""
        lines = {_first_line(node) for node in self._functions.get(qualname, ())}
        return {digest for line in lines if (digest := self.digest_at(qualname, line)) is not None}

    def digest_at(self, qualname: str, line: int) -> str | None:
        """Return the digest of the function that begins in this line; of all of them if several lambdas do."""
        nodes = [node for node in self._functions.get(qualname, ()) if _first_line(node) == line]
        return self._digest(nodes) if nodes else None

    def _digest(self, nodes: Sequence[ast.AST]) -> str:
        reached: dict[str, ast.AST] = {}
        open_nodes: list[ast.AST] = list(nodes)
        while open_nodes:
            for name in _names_used(open_nodes.pop()):
                if name in self._top and name not in reached:
                    reached[name] = self._top[name]
                    open_nodes.append(self._top[name])
        texts = [*map(ast.unparse, nodes), *(f"{name}: {ast.unparse(reached[name])}" for name in sorted(reached))]
        return hashlib.blake2b("\n".join(texts).encode(), digest_size=8).hexdigest()


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, _Function]]:
    """Give all functions below a node with their qualified names, as Python makes them (PEP 3155)."""
    for child in ast.iter_child_nodes(node):
        inner = prefix
        if isinstance(child, _Function):
            name = prefix + ("<lambda>" if isinstance(child, ast.Lambda) else child.name)
            yield name, child
            inner = f"{name}.<locals>."
        elif isinstance(child, ast.ClassDef):
            inner = f"{prefix}{child.name}."
        yield from _functions(child, inner)


def _names_defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).partition(".")[0] for alias in statement.names]
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
    return []


def _names_used(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)}


def _first_line(node: _Function) -> int:
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(each.lineno for each in decorators)])


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.body = node.body[ast.get_docstring(node) is not None :] or [ast.Pass()]
    return tree
