"""Tables whose names are known without importing the modules behind them, which is slow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Generic, TypeVar

T = TypeVar("T")


class LazyTable(Mapping[str, T], Generic[T]):
    """Classes by name, each given as `file:Class` of one folder; a file is imported when its class is requested."""

    def __init__(self, folder: str, places: Mapping[str, str]) -> None:
        self._folder, self._places = folder, places

    def __getitem__(self, name: str) -> T:
        file, _, kind = self._places[name].partition(":")
        found: T = getattr(import_module(f"{self._folder}.{file}"), kind)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
