"""`gatepost completion`: what a shell needs to complete our commands."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands. For bash: eval "$(gatepost completion bash)" in ~/.bashrc."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    print(kind(context.find_root().command, {}, "gatepost", "_GATEPOST_COMPLETE").source())
