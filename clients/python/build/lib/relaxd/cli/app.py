"""The commands of `relaxd` in the order in which `--help` lists them."""

from __future__ import annotations

from typing import Annotated

import typer

from relaxd.cli import compiling, looking, running, serving

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")


@app.callback()
def relaxd(
    _version: Annotated[
        bool, typer.Option("--version", callback=serving.version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Compile PyTorch models through Apache TVM Relax, look at every step, run them.

    Exit codes: 0 well; 1 a problem of the model or a pass; 2 of the command; 3 no server that answers.
    """


app.command("compile")(compiling.compile_file)
for command in (
    compiling.show,
    compiling.inspect,
    looking.ir,
    looking.diff,
    running.infer,
    looking.profile,
    looking.bisect,
    serving.ls,
    serving.rm,
    running.publish,
    running.models,
    running.download,
    serving.passes,
    serving.doctor,
):
    app.command()(command)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})(
    serving.serve
)
