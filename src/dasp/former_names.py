"""Modules by the names that they had before version 0.2: importing one gives the module by its present name."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["FORMER", "serve"]

# A package stands behind those of its modules that have other names now.
FORMER = {
    "dasp.axioms": "dasp.evaluation.axioms",
    "dasp.coalitions": "dasp.propagation.coalitions",
    "dasp.gaussian": "dasp.propagation.gaussian",
    "dasp.lifting": "dasp.propagation.lifting",
    "dasp.metrics": "dasp.evaluation.metrics",
    "dasp.rules": "dasp.propagation.rules",
    "dasp.selection": "dasp.methods.choice",
    "dasp.tracing": "dasp.propagation.tracing",
    "dasp.explain.arrays": "dasp.jobs.reading.arrays",
    "dasp.explain.data": "dasp.jobs.reading.chunks",
    "dasp.explain.job": "dasp.jobs.identity",
    "dasp.explain.players": "dasp.jobs.groups",
    "dasp.explain.tables": "dasp.jobs.reading.tables",
    "dasp.explain": "dasp.jobs",
    "dasp.experiments.comparison": "dasp.paper.outcome",
    "dasp.experiments.gaussianity": "dasp.evaluation.moments",
    "dasp.experiments": "dasp.paper",
}


class _Former(MetaPathFinder, Loader):
    """Finds modules by their former names. Asked first, as a former package leads to files by the wrong names."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Say that a module by a former name can be loaded."""
        return ModuleSpec(fullname, self) if _present(fullname) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module by its present name."""
        name = _present(spec.name)
        assert name is not None
        module = importlib.import_module(name)
        warnings.warn(f"{spec.name} is called {name} now", DeprecationWarning, stacklevel=2)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it was: it has run by its present name, and keeps that one."""
        module.__spec__ = self._spec


def _present(name: str) -> str | None:
    for before, now in FORMER.items():
        if name == before or name.startswith(f"{before}."):
            return now + name.removeprefix(before)
    return None


def serve() -> None:
    """Let imports find the former names."""
    if not any(isinstance(finder, _Former) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Former())
