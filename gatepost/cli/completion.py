"""`gatepost completion`: scripts for shell completion."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell. For bash, add eval "$(gatepost completion bash)" to ~/.bashrc."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"completion for {shell} is not available")
    print(kind(context.find_root().command, {}, "gatepost", "_GATEPOST_COMPLETE").source())
