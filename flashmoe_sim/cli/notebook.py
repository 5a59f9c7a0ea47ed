"""`sim notebook`: copies the notebooks that ship with the program, and opens them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from flashmoe_sim.cli.common import echo, force_option, json_option, message, print_json, print_result
from flashmoe_sim.io.sections import Table


@dataclass(frozen=True)
class Notebook:
    """A notebook that ships with the program. question: its title."""

    name: str
    question: str


@click.command(name="notebook")
@click.argument("name", required=False)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("notebooks"),
    show_default=True,
    help="Where the copies go.",
)
@click.option("--list", "listed", is_flag=True, help="List the notebooks with their questions, and copy none.")
@click.option("--no-open", is_flag=True, help="Only copy.")
@force_option
@json_option
def command(name: str | None, folder: Path, *, listed: bool, no_open: bool, force: bool, as_json: bool) -> None:
    """Copy the notebooks, and open them in JupyterLab.

    NAME, or its beginning, is from `sim notebook --list`; default: all. An existing notebook is kept,
    with your changes. --json copies and opens nothing.

    \b
    Examples:  sim notebook
               sim notebook 03 --dir study
    """
    from flashmoe_sim.io.whole import atomic_writer
    from flashmoe_sim.trace.bundled import bundled_folder

    shipped = bundled_folder() / "notebooks"
    known = notebooks(shipped)
    if listed:
        rows = [(one.name, one.question) for one in known]
        made = Table([("notebook", "left"), ("what it asks", "left")], rows)
        print_result({"notebooks": [asdict(one) for one in known]}, made, as_json=as_json)
        return
    chosen = known if name is None else [_find(name, known)]
    copied: list[Path] = []
    kept: list[Path] = []
    folder.mkdir(parents=True, exist_ok=True)
    for one in chosen:
        path = folder / f"{one.name}.ipynb"
        if path.exists() and not force:
            kept.append(path)
            continue
        with atomic_writer(path, force=force) as out:
            out.write((shipped / path.name).read_bytes())
        copied.append(path)
    if as_json:
        print_json({"copied": [str(path) for path in copied], "kept": [str(path) for path in kept]})
        return
    for path in copied:
        echo(f"copied {path}")
    for path in kept:
        echo(f"kept {path}: it was there already; --force copies it again")
    if not no_open:
        _open(folder if name is None else folder / f"{chosen[0].name}.ipynb")


def notebooks(folder: Path) -> list[Notebook]:
    """The notebooks of a folder with their titles, from the first cell."""
    found = []
    for path in sorted(folder.glob("*.ipynb")):
        first = "".join(json.loads(path.read_text("utf-8"))["cells"][0]["source"])
        found.append(Notebook(path.stem, first.partition("\n")[0].removeprefix("# ")))
    return found


def _find(name: str, known: list[Notebook]) -> Notebook:
    from flashmoe_sim.io.errors import unknown_name

    meant = [one for one in known if one.name.startswith(name)]
    if len(meant) != 1:
        raise unknown_name("notebook", name, [one.name for one in known])
    return meant[0]


def _open(place: Path) -> None:
    import subprocess
    import sys
    from importlib.util import find_spec

    if find_spec("jupyterlab") is None:
        command = "pip install '.[notebook]'"
        message(f"opening them needs the package jupyterlab: {command}; any other Jupyter will do")
        return
    subprocess.run([sys.executable, "-m", "jupyterlab", str(place)], check=False)
