"""Commands and options, made from the classes and fields that declare them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import MISSING, Field
from functools import partial, wraps
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import (
    FiniteRange,
    TokenRange,
    Tokens,
    asker,
    force_option,
    interruptible,
    json_option,
    lenient_option,
    message,
    online_option,
    print_json,
    print_sections,
    stoppable,
)
from flashmoe_sim.options import NAMES_MODEL, MemoryOptions
from flashmoe_sim.question import in_order
from flashmoe_sim.verbs.base import DrawnVerb

if TYPE_CHECKING:
    import polars

    from flashmoe_sim.io.sections import Section
    from flashmoe_sim.verbs.base import Verb

MANY = "..."  # ends the metavar of an argument that can be repeated
OF_TOKENS = ("context", "depth", "prompt_tokens", "answer_tokens")  # fields
PATHS = ("FILE", "DIR")  # words of help texts for which a shell completes paths

READS = {"read", "load"}  # what a verb takes that reads by itself
TABLES, PICTURES = (".csv", ".parquet", ".tex"), (".svg", ".pdf", ".png")


def command_of(name: str, verb: type[Verb[Any]], *, short_help: str | None = None) -> click.Command:
    """The command of a verb."""
    takes = signature(verb.run).parameters
    sized = (_size_option,) if issubclass(verb, DrawnVerb) else ()
    writes = (_out_option(verb), *sized, force_option) if verb.writes else ()
    models = _naming_models(verb)
    options = [
        _of_verb(verb),
        *writes,
        *(lenient_option,) * verb.reads,
        *(online_option,) * bool(models),
        json_option,
    ]

    def command(
        question: Any,
        *,
        as_json: bool,
        lenient: bool = False,
        online: bool = False,
        out: Path | None = None,
        size: str | None = None,
        force: bool = False,
    ) -> None:
        if online:
            _read_online(getattr(question, name) for name in models)
        if out is not None:
            _refuse_out(out, verb, force=force)
        sides = _sides(size, out)
        question.check()
        if verb.reads and not READS & takes.keys():
            from flashmoe_sim.verbs.given import with_trace

            question = interruptible(with_trace, question, _reads(lenient=lenient)["read"])
        found = _run(question, takes, lenient=lenient)
        if out is not None and out.suffix in PICTURES:
            from flashmoe_sim.report.figure_files import draw

            draw(question.chart(found), out, sides)
        elif out is not None and out.suffix == ".tex":
            _write_latex(question.sections(found), out, force=force)
        elif out is not None:
            _write_table(found.table(), out, force=force)
        for line in question.finish(found):
            message(line)
        if as_json:
            print_json(question.document(found))
        else:
            print_sections(question.sections(found))
            for note in question.notes(found):
                message(note)
        first, *others = question.failures(found) or (None,)
        for failure in others:
            message(str(failure))
        if first is not None:
            raise first

    made: Any = command
    for add in reversed([*options, _help_all] if verb.shown else options):
        made = add(made)
    of_verb: VerbCommand = click.command(cls=VerbCommand, name=name, help=verb.help, short_help=short_help)(made)
    of_verb.shown, of_verb.groups = verb.shown, _groups(verb)
    return of_verb


class VerbCommand(click.Command):
    """A command whose help shows the options that people use first; --help-all shows all, in groups.

    shown: the names of the fields that are shown first; all if it is empty. groups: the group of a field, by name.
    """

    shown: tuple[str, ...] = ()
    groups: Mapping[str, str] = MappingProxyType({})

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in groups, or the first ones and how many others there are."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        records = [(one, record) for one in options if (record := one.get_help_record(ctx))]
        first = [record for one, record in records if one.name in self.shown or {"--help", "--help-all"} & {*one.opts}]
        if self.shown and not ctx.meta.get(HELP_ALL):
            with formatter.section(f"Options; {len(records) - len(first)} more with --help-all"):
                formatter.write_dl(first)
            return
        titled = dict[str, list[tuple[str, str]]]()
        for one, record in records:
            titled.setdefault(self.groups.get(one.name or "", "Options"), []).append(record)
        for title, of in titled.items():
            with formatter.section(title):
                formatter.write_dl(of)


HELP_ALL = "help_all"


def _show_all(ctx: click.Context, _: click.Parameter, asked: bool) -> None:  # click calls it so
    if asked:
        ctx.meta[HELP_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


_help_all = click.option(
    "--help-all",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show every option, and exit.",
)


def _naming_models(verb: type[Verb[Any]]) -> list[str]:
    """The fields that may hold a model's name; a verb of real systems takes one in the place of a trace too."""
    return [
        item.name
        for item in in_order(verb)
        if item.metadata["metavar"] == NAMES_MODEL or (item.name == "trace" and issubclass(verb, MemoryOptions))
    ]


def _groups(verb: type[Verb[Any]]) -> dict[str, str]:
    """The heading under which the help shows each field, by name: `group` of the class that declares it."""
    found = dict[str, str]()
    for kind in reversed(verb.__mro__):
        if "group" in vars(kind):
            found |= dict.fromkeys(vars(kind).get("__annotations__", ()), vars(kind)["group"])
    return found


def _run(question: Verb[Any], takes: Iterable[str], *, lenient: bool) -> Any:
    """What the verb finds, with what its `run` takes of a terminal.

    It runs in a thread, since Ctrl-C within a compiled function could end the process at once; a verb that keeps its
    work only reads in one.
    """
    gives: dict[str, Any] = {"message": message, "ask": asker()}
    if READS & set(takes):
        gives |= _reads(lenient=lenient)
        if question.keeps:
            gives["read"] = partial(interruptible, gives["read"])
    given: dict[str, Any] = {name: gives[name] for name in takes if name in gives}
    with ExitStack() as stack:
        if shows := {"progress", "stages"} & set(takes):
            from flashmoe_sim.cli.progress import stages, working

            (name,) = shows
            given[name] = stack.enter_context(stages() if name == "stages" else working("replaying"))
        if question.keeps:
            stack.enter_context(stoppable())
        elif given:
            return interruptible(partial(question.run, **given))
        return question.run(**given)


def _reads(*, lenient: bool) -> dict[str, Any]:
    """What reads traces, with progress and notes."""
    from flashmoe_sim.cli.progress import reading
    from flashmoe_sim.verbs.given import Terminal, long_trace_of, trace_of, workload_of

    how: dict[str, Any] = {"lenient": lenient, "terminal": Terminal(reading, message)}
    ways = {"read": partial(workload_of, **how), "load": partial(trace_of, **how)}
    return {**ways, "load_long": partial(long_trace_of, **how)}


def _read_online(given: Iterable[Any]) -> None:
    """Read the headers of the repositories among models and traces that nothing here knows, with progress and a line.

    Raises BadInput and SimError like `online.read_repository`.
    """
    from flashmoe_sim.cli.progress import over_bytes
    from flashmoe_sim.geometry.load import load_model, look_online, may_be_online
    from flashmoe_sim.io.errors import BadInput
    from flashmoe_sim.io.sizes import size

    names = [name.strip() for text in given if isinstance(text, str) for name in text.split(",")]
    for name in filter(may_be_online, dict.fromkeys(names)):
        try:
            load_model(name)
        except BadInput:
            with over_bytes(f"reading {name}", 0) as advance:
                _, count_bytes = look_online(name, progress=advance)
            message(f"{name}: read {size(count_bytes)} from Hugging Face")


def _out_option(verb: type[Verb[Any]]) -> Any:
    """The file for the rows of a verb, or for its figure."""
    drawn = ", or draw them in this .svg, .pdf or .png" if issubclass(verb, DrawnVerb) else ""
    text = f"Also write the rows to this .csv or .parquet, the tables to this .tex{drawn}."
    return click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help=text)


_size_option = click.option(
    "--size",
    metavar="SIZE",
    help="Of the picture: a width, 3.3in, or with the height of the axes, 8.5x5cm; in, cm, mm, or points.",
)


def _sides(size: str | None, out: Path | None) -> dict[str, Any]:
    """The width and height of the picture, in points. Raises BadInput for a bad size, and for one without a picture."""
    if size is None:
        return {}
    from flashmoe_sim.io.errors import Incomplete
    from flashmoe_sim.report.figure_files import sides_of

    if out is None or out.suffix not in PICTURES:
        raise Incomplete(f"--size {size} is of a picture; give --out FILE.pdf, .svg or .png")
    return sides_of(size)


def _refuse_out(out: Path, verb: type[Verb[Any]], *, force: bool) -> None:
    """Raise BadInput if the result cannot be written to `out`: its name says no format, or it exists."""
    from flashmoe_sim.io.errors import Malformed
    from flashmoe_sim.io.whole import refuse_existing

    suffixes = TABLES + PICTURES * issubclass(verb, DrawnVerb)
    if out.suffix not in suffixes:
        raise Malformed(f"{out}: expected a name that ends in {', '.join(suffixes[:-1])} or {suffixes[-1]}")
    refuse_existing(out, force=force)
    if out.suffix in PICTURES:
        from flashmoe_sim.report.figures.save import converter

        converter()


def _write_table(table: polars.DataFrame, out: Path, *, force: bool) -> None:
    """Write a table as the format that the name says."""
    from flashmoe_sim.io.tables import as_csv
    from flashmoe_sim.io.whole import atomic_writer

    with atomic_writer(out, force=force) as file:
        file.write(as_csv(table)) if out.suffix == ".csv" else table.write_parquet(file)


def _write_latex(sections: Sequence[Section], out: Path, *, force: bool) -> None:
    """Write the tables of sections for LaTeX."""
    from flashmoe_sim.io.sections import Table, latex
    from flashmoe_sim.io.whole import atomic_writer

    tables = [latex(part) for section in sections for part in section.parts if isinstance(part, Table)]
    with atomic_writer(out, force=force) as file:
        file.write("\n".join(tables).encode())


def _of_verb(verb: type[Verb[Any]]) -> Callable[[Any], Any]:
    """Options for every field of a verb; the function gets an instance as its argument `question`."""

    def decorated(function: Callable[..., None]) -> Any:
        options = [item for item in in_order(verb) if not item.metadata["in_python"]]

        @wraps(function)
        def with_verb(**given: Any) -> None:
            question = {item.name: given.pop(item.name) for item in options}
            for item in options:
                parse = item.metadata["parse"]
                if parse is not None and question[item.name] is not None:
                    question[item.name] = parse(question[item.name])
            function(verb(**question), **given)

        command: Any = with_verb
        for item in reversed(options):
            command = _option(item)(command)
        return command

    return decorated


def _option(item: Field[Any]) -> Callable[[Any], Any]:
    metadata, required = item.metadata, item.default is MISSING
    metavar = metadata["metavar"]
    if metadata["positional"]:
        kind = click.Path(path_type=Path) if item.type in ("Path", "tuple[Path, ...]") else None
        nargs = -1 if metavar.endswith(MANY) else 1
        return click.argument(item.name, required=required, metavar=metavar, nargs=nargs, type=kind)
    settings: dict[str, Any] = {"help": metadata["help"], "required": required}
    if item.default is False:
        settings |= {"is_flag": True}
    elif "/" in (metadata["flag"] or ""):  # a flag, and its opposite
        settings |= {"is_flag": True, "default": item.default}
    elif metadata["choices"]:
        settings |= {"type": click.Choice(metadata["choices"])}
    else:
        settings |= {"metavar": metavar, "type": _type(item)}
    if item.default == ():
        settings |= {"multiple": True}
    elif not required and item.default is not None and item.default is not False:
        settings |= {"default": item.default, "show_default": True}
    return click.option(metadata["flag"] or f"--{item.name.replace('_', '-')}", item.name, **settings)


def _type(item: Field[Any]) -> Any:
    metadata, kind = item.metadata, str(item.type).removesuffix(" | None")
    if metadata["metavar"] in PATHS:
        return click.Path(path_type=Path)
    least, most, above = metadata["least"], metadata["most"], metadata["above"]
    if item.name in OF_TOKENS:
        return Tokens() if least is None else TokenRange(least, most)
    if kind == "int":
        return int if least is None else click.IntRange(least, most)
    if kind == "float" and metadata["parse"] is None:
        if above is not None:
            return FiniteRange(above, most, min_open=True)
        return float if least is None else FiniteRange(least, most)
    return str
