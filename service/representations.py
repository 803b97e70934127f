"""A Snapshot in other forms than its own: highlighted HTML, a Graphviz graph, a graph for Google's Model Explorer."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from service.errors import JsonObject

# Highlighting takes a second a megabyte; what is longer is shown plainly.
HIGHLIGHTED_BYTES = 1 << 20

_LEXERS = {"llvm": "llvm", "asm": "nasm", "vm": "text"}
_STYLE = """\
:root { color-scheme: light dark; }
body { margin: 0; font: 14px/1.45 ui-monospace, monospace; }
h1 { font: 600 16px system-ui, sans-serif; margin: 12px 16px; }
pre { margin: 0; padding: 0 16px 16px; tab-size: 4; }
.highlight .linenos, .linenos { opacity: .55; padding-right: 1em; user-select: none; }
"""


def to_html(snapshot: JsonObject, title: str, stage: str) -> str:
    """One page without scripts: the text with line numbers, each line with an anchor ``#L12``."""
    text = str(snapshot["text"])
    light, dark = (HtmlFormatter(style=style, linenos="inline", lineanchors="L") for style in ("xcode", "github-dark"))
    if len(text) > HIGHLIGHTED_BYTES:
        body = f"<pre>{html.escape(text)}</pre>"
    else:
        body = highlight(text, get_lexer_by_name(_LEXERS.get(stage, "python"), stripnl=False), light)
    colours = f"{light.get_style_defs('.highlight')}\n@media (prefers-color-scheme: dark) {{\n"
    colours += f"{dark.get_style_defs('.highlight')}\n}}\n"
    heading = html.escape(title)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{heading}</title>\n<style>\n{colours}{_STYLE}</style>\n</head>\n"
        f"<body>\n<h1>{heading}</h1>\n{body}\n</body>\n</html>\n"
    )


def to_dot(snapshot: JsonObject, title: str) -> str:
    """The graphs of all Relax functions, one cluster each, in Graphviz's language. Calls point to what they call."""
    lines = [f"digraph {_quoted(title)} {{", "  rankdir=TB;", '  node [shape=box, fontname="monospace", fontsize=10];']
    for number, entry in enumerate(_relax(snapshot)):
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(entry['name'])};"]
        for node in entry["bindings"]:
            shape = ", shape=ellipse" if node["op"] in ("parameter", "return") else ""
            label = _quoted(f"{node['name']}\n{_title(node)}\n{node['type']}")
            lines.append(f"    {_quoted(_id(entry, node['name']))} [label={label}{shape}];")
        for node in entry["bindings"]:
            for source in node["inputs"]:
                lines.append(f"    {_quoted(_id(entry, source))} -> {_quoted(_id(entry, node['name']))};")
        lines.append("  }")
    return "\n".join([*lines, "}", ""])


def to_model_explorer(snapshot: JsonObject, title: str, origins: list[JsonObject]) -> JsonObject:
    """A graph collection of Model Explorer (github.com/google-ai-edge/model-explorer): one graph a Relax function.

    The namespace of a node is the module that it comes from first, by the model's `origins`; what calls a kernel has
    its TensorIR as an attribute.
    """
    kernels = {entry["name"]: entry for entry in snapshot["functions"]}
    graphs = []
    for entry in sorted(_relax(snapshot), key=lambda entry: (entry["name"] != "main", entry["name"])):
        graphs.append(
            {"id": entry["name"], "nodes": [_explorer_node(node, kernels, origins) for node in entry["bindings"]]}
        )
    return {"label": title, "graphs": graphs}


def _explorer_node(node: JsonObject, kernels: dict[str, JsonObject], origins: list[JsonObject]) -> JsonObject:
    known = [origins[position] for position in node.get("origins", ()) if position < len(origins)]
    attributes = [("type", node["type"])]
    attributes += [("source", str(origin["source"])) for origin in known if origin["source"]]
    callee = kernels.get(node.get("callee", ""))
    if callee is not None:
        figures = ("flops", "bytes_moved", "text")
        attributes += [(key, str(callee[key])) for key in figures if callee[key] is not None]
    return {
        "id": node["name"],
        "label": _title(node),
        "namespace": next((str(origin["module"]).replace(".", "/") for origin in known if origin["module"]), ""),
        "attrs": [{"key": key, "value": value} for key, value in attributes],
        "incomingEdges": [
            {"sourceNodeId": source, "sourceNodeOutputId": "0", "targetNodeInputId": str(position)}
            for position, source in enumerate(node["inputs"])
        ],
        "outputsMetadata": [{"id": "0", "attrs": [{"key": "tensor_shape", "value": node["type"]}]}],
    }


def _relax(snapshot: JsonObject) -> Iterator[JsonObject]:
    return (entry for entry in snapshot["functions"] if entry["bindings"])


def _title(node: JsonObject) -> str:
    return str(node.get("callee") or node["op"]).removeprefix("relax.")


def _id(entry: JsonObject, name: str) -> str:
    return f"{entry['name']}/{name}"


def _quoted(text: Any) -> str:
    # Graphviz reads JSON's string escapes, but for those of control characters, which no name has.
    return json.dumps(str(text), ensure_ascii=False)
