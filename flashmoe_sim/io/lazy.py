"""Tables whose names are known without the modules behind them, which take long to import."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Generic, TypeVar

T = TypeVar("T")


class LazyTable(Mapping[str, T], Generic[T]):
    """What `module:Name` holds, by a name of its own; a module is imported when something of it is asked for."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> T:
        module, _, attribute = self._places[name].partition(":")
        found: T = getattr(import_module(module), attribute)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
