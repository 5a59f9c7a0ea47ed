"""Programs that stand in for llama.cpp's: scripts that call a module of this folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

SCRIPT = """#!{python}
import sys
sys.path.insert(0, {folder!r})
from {module} import main
main({behaviour!r}, sys.argv[1:], {counter!r})
"""


def write(path: Path, module: str, behaviour: dict[str, Any]) -> Path:
    """The program. behaviour: what `main` of the module reads; the runs are counted in the file `runs` beside it."""
    here, counter = str(Path(__file__).parent), str(path.with_name("runs"))
    script = SCRIPT.format(python=sys.executable, folder=here, module=module, behaviour=behaviour, counter=counter)
    path.write_text(script)
    path.chmod(0o755)
    return path
