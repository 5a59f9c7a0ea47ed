"""`sim`: the table of verbs, and the one place where errors become a line and an exit code."""

from __future__ import annotations

import codecs
import gc
import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import click

from flashmoe_sim.io.errors import INTERRUPTED, TERMINATED, Interrupted, SimError, did_you_mean
from flashmoe_sim.io.printable import printable


class VerbEntry(NamedTuple):
    """module: its class as module:Class, a module with a `command`, or empty for a group, whose help is `help`.

    does: what it does, for `sim --help`. hidden: whether no help names it.
    """

    module: str
    does: str
    help: str = ""
    hidden: bool = False


CLASSES = "flashmoe_sim.verbs"
OF_TRACES = """Inspect, lint, convert, import, cut, combine and make routing traces.

    TRACE is a file, a bundled name, or - for stdin. Its content decides the format: the runtime's JSONL, or any with
    layer and experts in each line; responses of vLLM and SGLang; recordings of SGLang, Megatron-LM and llama.cpp
    tracers; token pairs; route CSV; grouped pairs; CSV with the columns layer and expert; or this program's Parquet
    store. Files may be compressed with gzip or zstd. `import` takes arrays and any table.
    """
VERBS: dict[str, VerbEntry] = {
    "sweep": VerbEntry(f"{CLASSES}.sweep:Sweep", "count hits and bytes for many bank sizes and policies"),
    "replay": VerbEntry(f"{CLASSES}.replay:Replay", "count hits and bytes of one setup, layer by layer"),
    "curve": VerbEntry(f"{CLASSES}.curve:Curve", "count the hits at every bank size in one pass"),
    "diagnose": VerbEntry(f"{CLASSES}.diagnose:Diagnose", "say why a setup misses: the policy or the working set"),
    "ceilings": VerbEntry(f"{CLASSES}.ceilings:Ceilings", "show how fast a setup could run, and what limits it"),
    "predict": VerbEntry(f"{CLASSES}.predict:Predict", "predict the speed from a hit rate alone"),
    "compare": VerbEntry(f"{CLASSES}.compare:Compare", "compare engines and their settings on one machine"),
    "recommend": VerbEntry(f"{CLASSES}.recommend:Recommend", "choose the engine and its flags for a machine"),
    "report": VerbEntry(f"{CLASSES}.report:Report", "write one web page: the answer, its figures, its sources"),
    "trace": VerbEntry("", "record, import, inspect, check, cut, merge and make traces", OF_TRACES),
    "model": VerbEntry(
        "",
        "list models, and show the size of their experts",
        "List models, show the size of their experts, and make small ones.",
    ),
    "machine": VerbEntry("", "list, measure, fit and build machines", "List, measure, fit and build machines."),
    "policy": VerbEntry(
        "", "list and explain eviction policies", "List, explain, judge and fit the eviction policies."
    ),
    "prefetch": VerbEntry(
        "", "list, explain and judge predictors", "List and explain the predictors, and judge them by what they save."
    ),
    "system": VerbEntry(
        "",
        "list and explain systems: engines and their settings",
        "List and explain the systems that `sim compare` puts side by side.",
    ),
    "field": VerbEntry(
        "",
        "make and check rows of speeds that you measured",
        "Make rows of speeds that you measured, for the project's tables, and check them beside what is predicted.",
    ),
    "notebook": VerbEntry(f"{CLASSES}.notebook:CopyNotebooks", "copy notebooks that start a study, and open them"),
    "mcp": VerbEntry("flashmoe_sim.cli.mcp", "answer an assistant by the Model Context Protocol"),
    "completion": VerbEntry("flashmoe_sim.cli.completion", "print a script that completes words in bash, zsh or fish"),
}


BELOW: dict[str, dict[str, VerbEntry]] = {  # by group
    "trace": {
        "catalog": VerbEntry(f"{CLASSES}.inspect:TraceCatalog", "The traces that ship with the program."),
        "list": VerbEntry(f"{CLASSES}.inspect:TraceCatalog", "The same.", hidden=True),
        "inspect": VerbEntry(f"{CLASSES}.inspect:Inspect", "Width of calls, skew, reuse, overlap."),
        "lint": VerbEntry(f"{CLASSES}.inspect:Lint", "Errors and oddities of a trace; exit 1 on an error."),
        "convert": VerbEntry(f"{CLASSES}.trace_file:Convert", "Write a trace as Parquet or in the runtime's layout."),
        "cut": VerbEntry(f"{CLASSES}.trace_file:Cut", "A part of a trace: fewer ranks, layers or steps."),
        "profile": VerbEntry(f"{CLASSES}.profile:WriteProfile", "Write the uses of each expert, for a hot cache."),
        "merge": VerbEntry(
            f"{CLASSES}.trace_file:Merge", "Several traces as one: batched, together, in a row, in turns."
        ),
        "speculate": VerbEntry(
            f"{CLASSES}.trace_file:Speculate", "Speculative decoding: several tokens verified in one step."
        ),
        "synth": VerbEntry(f"{CLASSES}.synth:SynthFile", "A trace from a hit curve, a profile, or chance."),
        "import": VerbEntry(
            f"{CLASSES}.import_trace:ImportTrace",
            "Convert recordings of engines and tools, and state what was assumed.",
        ),
    },
    "model": {
        "list": VerbEntry(f"{CLASSES}.model:ListModels", "The models known by name."),
        "show": VerbEntry(f"{CLASSES}.model:ShowModel", "The size of experts, layer by layer, and of a bank."),
    },
    "machine": {
        "list": VerbEntry(f"{CLASSES}.machine:ListMachines", "All presets in a table."),
        "this": VerbEntry(f"{CLASSES}.machine:ThisMachine", "This computer, as parts, and how each is known."),
        "show": VerbEntry(f"{CLASSES}.machine:ShowMachine", "One machine: every number, its interval and its source."),
        "parts": VerbEntry(f"{CLASSES}.machine:ListParts", "The parts for machines."),
        "build": VerbEntry(f"{CLASSES}.machine:BuildMachine", "A machine's file, from parts."),
        "next": VerbEntry(f"{CLASSES}.next_run:NextRun", "The run that would narrow the answer most."),
    },
    "policy": {
        "list": VerbEntry(f"{CLASSES}.policy:ListPolicies", "All policies in a table."),
        "show": VerbEntry(f"{CLASSES}.policy:ShowPolicy", "One policy: rule, parameters, ties, source."),
        "judge": VerbEntry(f"{CLASSES}.judge_policies:JudgePolicies", "Policies against another one, with intervals."),
        "fit": VerbEntry(
            f"{CLASSES}.fit_policy:FitPolicy", "Parameters of a policy, fitted on some text and judged on other."
        ),
        "victims": VerbEntry(f"{CLASSES}.victims:Victims", "How often policies evict what is used latest."),
    },
    "prefetch": {
        "list": VerbEntry(f"{CLASSES}.policy:ListPredictors", "All predictors in a table."),
        "show": VerbEntry(f"{CLASSES}.policy:ShowPredictor", "One predictor: rule, lead, parameters, source."),
        "judge": VerbEntry(f"{CLASSES}.judge:Judge", "What each predictor costs and saves in a bank."),
    },
    "field": {
        "add": VerbEntry(f"{CLASSES}.field:AddRow", "A row from what an engine or a benchmark printed."),
        "check": VerbEntry(f"{CLASSES}.field:CheckRows", "Refuse rows that cannot be, and predict the others."),
    },
    "system": {
        "list": VerbEntry(f"{CLASSES}.system:ListSystems", "All systems in a table."),
        "engines": VerbEntry(f"{CLASSES}.system:ListEngines", "All engines, and when their facts were looked up."),
        "show": VerbEntry(f"{CLASSES}.system:ShowSystem", "One system: rule, settings, needs, source."),
        "new": VerbEntry(f"{CLASSES}.system:NewSystem", "A package to start a system of your own from."),
    },
}


def _made(name: str, verb: VerbEntry) -> click.Command:
    """The command of a verb, or its group without what is below it."""
    module, _, class_name = verb.module.partition(":")
    if not module:
        return click.Group(name, help=verb.help)
    loaded = importlib.import_module(module)
    if not class_name:
        command: click.Command = loaded.command
        return command
    from flashmoe_sim.cli.commands import command_of

    made = command_of(name, getattr(loaded, class_name), short_help=verb.does)
    made.hidden = verb.hidden
    return made


START = """\
Usage: sim VERB ...

Three things to ask:
  sim recommend gpt-oss-120b             what to run here, and how fast
      ... --machine "rtx-3060 + 32GiB"   or on another computer
  sim tune model.gguf                    the fastest flags, measured here
  sim sweep gpt-oss-120b --bank 16..256  what banks of experts would hit

All verbs: sim --help; options of one: sim VERB --help"""
COMPLETING = "_SIM_COMPLETE"  # click's own: it is set while a shell asks for completions


class Verbs(click.Group):
    """Loads a verb's module only when the verb is used, so that `sim --help` stays quick."""

    verbs: Mapping[str, VerbEntry] = VERBS
    below: Mapping[str, Mapping[str, VerbEntry]] = BELOW

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.verbs:
            return None
        command = self.load(cmd_name)
        if COMPLETING in os.environ:
            from flashmoe_sim.cli.completion import with_names

            return with_names(command)
        return command

    def load(self, name: str) -> click.Command:
        """The verb's command, with the verbs below it."""
        command = _made(name, self.verbs[name])
        if not isinstance(command, click.Group):
            return command
        below = {one: _made(one, verb) for one, verb in self.below.get(name, {}).items()}
        return click.Group(name, {**command.commands, **below}, help=command.help)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """The verbs, without importing any, and the options."""
        from click.shell_completion import CompletionItem

        fitting = [name for name in self.verbs if name.startswith(incomplete)]
        verbs = [CompletionItem(name, help=self.verbs[name].does) for name in fitting]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and args[0] not in self.verbs and not ctx.resilient_parsing:
            meant = did_you_mean(args[0], self.verbs)
            raise click.UsageError(f"unknown verb {args[0]!r}; {meant}known: {', '.join(self.verbs)}", ctx)
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            _refuse_repeated(command, rest, ctx)
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:  # here, because click would print an empty line
            raise Interrupted("interrupted; nothing was left half-written", stop) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.does) for name, verb in self.verbs.items()])


def _refuse_repeated(command: click.Command, words: Sequence[str], ctx: click.Context) -> None:
    """Refuse a second --model or --machine, which is meant beside the first: click would drop that silently."""
    options = [one for one in command.params if isinstance(one, click.Option) and not one.is_flag and not one.count]
    named = {name: option for option in options for name in option.opts}
    given: set[str] = set()
    left = iter(words)
    for word in left:
        if word == "--":
            return
        name, has_value, _ = word.partition("=")
        option = named.get(name)
        if option is None:
            continue
        if not has_value:
            next(left, None)
        if name in given and name in ("--model", "--machine") and not option.multiple:
            raise click.UsageError(f"{name} is given twice; give it once, several values with commas between them", ctx)
        given.add(name)


@click.command(cls=Verbs, subcommand_metavar="VERB ...", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="flashmoe-sim", prog_name="sim")
def sim() -> None:
    """Replay recorded routing of mixture-of-experts models against expert banks.

    Start with `sim sweep --bank 16..256`, which runs on a bundled real trace, or with
    `sim recommend gpt-oss-120b --machine rtx-4090`. `sim VERB --help` explains each verb.
    """


def main(arguments: Sequence[str] | None = None, *, command: click.Command = sim) -> int:
    """Run `sim` with these arguments (the command line's by default) and return the exit code.

    command: `sim` itself, or one with more verbs.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed before the start: the next opened file would get its number
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  # while the process runs
        _let_print(getattr(sys, name))
    if COMPLETING in os.environ:
        from flashmoe_sim.cli.completion import use_shells

        use_shells()
    try:
        command.main(args=arguments, prog_name="sim", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        alone = error.ctx is not None and error.ctx.parent is None
        click.echo(START if alone else error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        where = f"{error.ctx.command_path}: " if error.ctx else "sim: "
        return _fail(f"{where}{error.format_message()}{_what_to_give(error)}", 2)
    except click.ClickException as error:
        return _fail(f"sim: {error.format_message()}", 2)
    except SimError as error:
        return _fail(f"sim: {error}", error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _fail("sim: interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of stdout wants no more
        _forget_stdout()
        return 1
    except OSError as error:
        _forget_stdout()
        what = f"{error.filename}: {error.strerror}" if error.filename else f"the output cannot be written ({error})"
        return _fail(f"sim: {what}", 2)
    except MemoryError:
        return _fail("sim: not enough memory; give fewer or shorter traces at once, or raise the limit", 2)
    return 0


_PLAIN = {"─": "-", "…": "...", "±": "+-"}


def _let_print(stream: Any) -> None:
    """Let a stream print what its encoding lacks, as code pages of Windows do, in plainer characters or as `?`."""
    codecs.register_error("plain", _plainer)
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="plain")


def _plainer(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(one, "?") for one in error.object[error.start : error.end]), error.end


PARTS = frozenset({"--gpu", "--cpu", "--ram", "--vram", "--memory", "--os"})


def _what_to_give(error: click.UsageError) -> str:
    """What the help says of an option, if it is missing; or how parts are given, which have no options."""
    if isinstance(error, click.NoSuchOption) and error.option_name in PARTS:
        return ' Parts of a computer are one text: --machine "rtx-3060 + ryzen-5600 + 32GiB + windows"'
    option = error.param if isinstance(error, click.MissingParameter) else None
    if not isinstance(option, click.Option) or not option.help:
        return ""
    return f" Give {option.opts[0]} {option.metavar or 'VALUE'}: {option.help}"


def _forget_stdout() -> None:
    """Discard what is left for stdout, so that the interpreter does not fail on it at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> int:
    with suppress(OSError):
        click.echo(printable(" ".join(message.split())), err=True)
    return code


def entry(*, command: click.Command = sim) -> None:
    """The console script: `main`, where even an internal error is one line, unless FLASHMOE_TRACEBACK is set."""
    gc.set_threshold(300_000, 50)  # by default it takes a twelfth of the time, mostly while modules are imported
    try:
        code = main(command=command)
    except Exception as error:
        if os.environ.get("FLASHMOE_TRACEBACK"):
            raise
        what = f"{type(error).__name__}: {error}"
        code = _fail(f"sim: internal error, {what}; FLASHMOE_TRACEBACK=1 shows where; please report it", 1)
    if code in {INTERRUPTED, TERMINATED}:
        from flashmoe_sim.io.whole import remove_unfinished

        remove_unfinished()
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(code)  # a compiled kernel in another thread cannot be interrupted, and is not worth waiting for
    gc.freeze()  # or Python would search everything for garbage as it ends, which takes 0.1 s
    sys.exit(code)
