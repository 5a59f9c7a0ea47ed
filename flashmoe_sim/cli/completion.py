"""`sim completion`: a script that completes verbs, options and names in a shell."""

from __future__ import annotations

import click

from flashmoe_sim.cli.common import json_option, print_json
from flashmoe_sim.cli.main import COMPLETING

WHERE = {
    "bash": 'eval "$(sim completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(sim completion zsh)" in ~/.zshrc, after compinit',
    "fish": "sim completion fish > ~/.config/fish/completions/sim.fish",
}


@click.command(name="completion", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("shell", type=click.Choice(list(WHERE)))
@json_option
@click.pass_context
def command(ctx: click.Context, shell: str, as_json: bool) -> None:
    """Print the script that completes verbs, options and bundled names in SHELL.

    \b
    bash:  eval "$(sim completion bash)" in ~/.bashrc
    zsh:   eval "$(sim completion zsh)" in ~/.zshrc, after compinit
    fish:  sim completion fish > ~/.config/fish/completions/sim.fish
    """
    from click.shell_completion import get_completion_class

    from flashmoe_sim.cli.shells import use_shells

    use_shells()
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "sim", COMPLETING).source()
    if as_json:
        print_json({"shell": shell, "install": WHERE[shell], "script": script})
        return
    click.echo(script, nl=False)
