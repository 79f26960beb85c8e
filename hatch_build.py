"""Write the type stubs before a wheel or an editable install is built."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class StubHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write them into the source tree, from where the wheel takes them."""
        sys.path[:0] = [self.root, str(Path(self.root) / "src")]
        import build_stubs

        build_stubs.write()
