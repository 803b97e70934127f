"""`relaxd infer`, `publish` and `download`: using what was compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from relaxd.cli.session import ApiKey, AsJson, Id, Url, session
from relaxd.cli.words import plain
from relaxd.connection import DEFAULT_URL
from relaxd.publishing import PublishedModel
from relaxd.tensors import encode_examples


def infer(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A Compilation (`last`), or a published name.")],
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="An .npz by name, or an .npy for one input."),
    ],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="An .npz; without it they are shown.")] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Run a model on arrays from a file."""
    with session(url, api_key, as_json) as opened:
        loaded: Any = np.load(file, allow_pickle=False)
        arrays = loaded if isinstance(loaded, np.ndarray) else dict(loaded)
        outputs = opened.client.infer(opened.resolve(model), arrays)
        if output is not None:
            output.write_bytes(encode_examples(outputs))
        document = {
            "model": model,
            "outputs": {
                name: {"dtype": array.dtype.name, "shape": list(array.shape), "data": plain(array.tolist())}
                for name, array in outputs.items()
            },
        }
        lines = [f"{name}: {array.dtype}{list(array.shape)}\n{array}" for name, array in outputs.items()]
        written = [] if output is None else [Text(f"written to {output}")]
        opened.show(document, *(written or map(Text, lines)))


def publish(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the model.")],
    compilation: Annotated[str | None, typer.Argument(metavar="[ID]", help="Its next version.")] = None,
    version: Annotated[int | None, typer.Option(min=1, help="Let this earlier version answer again.")] = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take the name away; the Compilations stay.")] = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Give a Compilation a name that answers; go back to a version; or take the name away."""
    if [compilation is not None, version is not None, withdraw].count(True) != 1:
        raise typer.BadParameter("give one of ID, --version and --withdraw", param_hint="ID")
    with session(url, api_key, as_json) as opened:
        if withdraw:
            opened.client.withdraw(name)
            opened.show({"withdrawn": name}, f"withdrawn: {name}")
            return
        asked = version if version is not None else opened.resolve(str(compilation))
        model = opened.client.publish(name, asked)
        opened.show(published(model), f"{model.name} version {model.version} is {model.compilation}")


def published(model: PublishedModel) -> dict[str, Any]:
    """A published model as the JSON of the server."""
    return {**vars(model), "versions": [vars(version) for version in model.versions]}


def models(url: Url = DEFAULT_URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """The published models."""
    with session(url, api_key, as_json) as opened:
        found = opened.client.models()
        table = Table("name", "version", "compilation", "versions", box=None, pad_edge=False)
        for model in found:
            table.add_row(model.name, str(model.version), model.compilation, str(len(model.versions)))
        opened.show({"models": [published(model) for model in found]}, table)


def download(
    compilation: Id,
    output: Annotated[Path, typer.Option("--output", "-o", help="A file or a folder.")] = Path(),
    what: Annotated[str, typer.Option(help="archive (the library), repro, or report.")] = "archive",
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Take away the compiled library, what runs it again without a server, or a page about it."""
    endings = {"archive": ".zip", "repro": ".repro.zip", "report": ".html"}
    if what not in endings:
        raise typer.BadParameter(f"must be one of {', '.join(endings)}", param_hint="--what")
    with session(url, api_key, as_json) as opened:
        found = opened.resolve(compilation)
        target = output / f"{Path(found).name}{endings[what]}" if output.is_dir() else output
        if what == "archive":
            opened.client.download(found, target)
        elif what == "repro":
            target.write_bytes(opened.client.repro(found))
        else:
            target.write_text(opened.client.report(found))
        opened.show({"path": str(target), "bytes": target.stat().st_size}, f"{target}")
