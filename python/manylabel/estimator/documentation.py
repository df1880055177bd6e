"""Functions that copy docstring entries, so that shared parameters are described only once.

In the source code, the docstring of a class has only the entries that are specific to the class.
`inherit_documentation` copies missing entries of the sections Parameters, Attributes, Returns, Raises and
Warns from the docstrings of the base classes. ``help`` then shows all entries. If several methods of a class
have the same parameter, such as X, only one method needs an entry for this parameter. The decorator
`documented_like` copies missing entries from one function to another function.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["documented_like", "inherit_documentation", "parameter_texts"]

Function = TypeVar("Function", bound=Callable[..., Any])

_SECTIONS = ("Parameters", "Attributes", "Returns", "Raises", "Warns")


def inherit_documentation(cls: type) -> None:
    """Complete the docstrings of a class and its methods from the docstrings of its base classes.

    Parameters
    ----------
    cls : type
        The class. The docstrings of the class and of its methods are replaced. In a new docstring, the
        section Parameters lists the parameters in the order of the signature of the class or method. In all
        other sections, the copied entries follow the entries that were there before.
    """
    bases = cls.__mro__[1:]
    own = list(inspect.signature(cls).parameters)
    cls.__doc__ = _completed(cls.__doc__, [base.__doc__ for base in bases if _is_ours(base)], own)
    classes = [base for base in cls.__mro__ if _is_ours(base)]
    shared = [_only_parameters(method.__doc__) for base in classes for method in _methods(base).values()]
    for at, owner in enumerate(classes):
        for name, method in _methods(owner).items():
            overridden = [vars(base)[name].__doc__ for base in classes[at + 1 :] if name in vars(base)]
            parameters = list(inspect.signature(method).parameters)
            method.__doc__ = _completed(method.__doc__, [*overridden, *shared], parameters)


def _methods(cls: type) -> dict[str, Any]:
    return {
        name: method
        for name, method in vars(cls).items()
        if not name.startswith("_") and inspect.isfunction(method)
    }


def _only_parameters(doc: str | None) -> str | None:
    """Return only the Parameters section of a docstring."""
    found = _sections(doc).get("Parameters", {})
    return _section("Parameters", "\n".join(found.values()))


def documented_like(other: Callable[..., Any]) -> Callable[[Function], Function]:
    """Return a decorator that completes the docstring of a function from the docstring of another function.

    Parameters
    ----------
    other : function
        The function whose docstring is the source. If the docstring of the decorated function does not
        describe a parameter, the description is copied from `other`. In the new docstring, the section
        Parameters lists the parameters in the order of the signature of the decorated function. Missing
        entries of the sections Attributes, Raises and Warns are copied, too. The section Returns is copied
        only if the docstring of the decorated function has no such section.

    Returns
    -------
    function
        A decorator that replaces the docstring of a function and returns the function.
    """

    def complete(function: Function) -> Function:
        function.__doc__ = _completed(
            function.__doc__, [other.__doc__], list(inspect.signature(function).parameters)
        )
        return function

    return complete


def _is_ours(base: type) -> bool:
    return base.__module__.startswith("manylabel.")


def _completed(doc: str | None, of_bases: list[str | None], parameters: list[str]) -> str | None:
    if doc is None:  # python -OO removes docstrings
        return None
    others = [other for other in map(_sections, of_bases) if other]
    own = _sections(doc)
    for section in _SECTIONS:
        found: dict[str, str] = {}
        for entries in [own, *others]:
            for name, text in entries.get(section, {}).items():
                found.setdefault(name, text)
        if section == "Parameters":
            found = {name: found[name] for name in parameters if name in found}
        elif section == "Returns" and section in own:
            found = own[section]
        if found:
            own[section] = found
    return _replaced(inspect.cleandoc(doc), own)


def _sections(doc: str | None) -> dict[str, dict[str, str]]:
    """Return the entries of the sections of a docstring, as a dict of dicts.

    The outer dict maps the titles of the sections to inner dicts. It has only the sections that are in the
    docstring and in `_SECTIONS`. An inner dict maps the name of each entry of a section to the text of the
    entry.
    """
    parts = re.split(r"^(\w[\w ]*)\n-+\n", inspect.cleandoc(doc or ""), flags=re.MULTILINE)
    sections = {}
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        if title in _SECTIONS:
            entries = re.split(r"^(?=\S)", body.strip("\n"), flags=re.MULTILINE)
            sections[title] = {_name(entry): entry.rstrip() for entry in entries if entry.strip()}
    return sections


def _name(entry: str) -> str:
    return entry.split("\n", 1)[0].split(" : ")[0]


def _replaced(doc: str, sections: dict[str, dict[str, str]]) -> str:
    """Insert `sections` into the docstring `doc`, and return the new docstring.

    If `sections` has the section Attributes, only the sections Parameters and Attributes are inserted. If
    `doc` has a section with the same title as an inserted section, the inserted section replaces it. The
    result has three parts: the text before the first section of `doc`, then the inserted sections in
    numpydoc's order, and then the sections of `doc` that were not replaced.
    """
    parts = re.split(r"^(\w[\w ]*)\n-+\n", doc, flags=re.MULTILINE)
    texts = [parts[0].rstrip()]
    of_class = "Attributes" in sections
    order = [title for title in _SECTIONS if (title in ("Parameters", "Attributes")) or not of_class]
    for title in order:
        if title in sections:
            texts.append(_section(title, "\n".join(sections[title].values())))
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        if title not in order:
            texts.append(_section(title, body.rstrip()))
    return "\n\n".join(texts) + "\n"


def _section(title: str, body: str) -> str:
    return f"{title}\n{'-' * len(title)}\n{body}"


def parameter_texts(cls: type) -> dict[str, str]:
    """Return a dict that maps each parameter name of a class to its description, joined into one line."""
    entries = _sections(cls.__doc__).get("Parameters", {})
    return {name: " ".join(entry.split("\n", 1)[-1].split()) for name, entry in entries.items()}
