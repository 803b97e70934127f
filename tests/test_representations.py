"""Snapshots as HTML, as Graphviz and for Model Explorer."""

from __future__ import annotations

import html
import re

from service.listings import text_function
from service.representations import HIGHLIGHTED_BYTES, to_dot, to_html, to_model_explorer

KERNEL = {**text_function("relu", "tensorir", "@T.prim_func\n"), "flops": 8, "bytes_moved": 64}
MAIN = {
    **text_function("main", "relax", '@R.function\ndef main(x: R.Tensor((4,), "float32")):\n    # <b>\n'),
    "bindings": [
        {"name": "x", "op": "parameter", "type": 'R.Tensor((4,), "float32")', "inputs": []},
        {"name": "lv", "op": "call_tir", "type": "R.Tensor", "inputs": ["x"], "callee": "relu", "origins": [0]},
        {"name": "return", "op": "return", "type": "R.Tensor", "inputs": ["lv"]},
    ],
}
SNAPSHOT = {"text": MAIN["text"], "functions": [MAIN, KERNEL]}


def test_the_page_shows_the_text_escaped_with_an_anchor_for_each_line():
    page = to_html(SNAPSHOT, "a <title>", "import")
    assert "<title>a &lt;title&gt;</title>" in page
    assert 'id="L-3"' in page
    assert "<script" not in page
    assert html.unescape(re.sub(r"<[^>]*>", "", page)).count("# <b>") == 1


def test_long_text_is_shown_plainly():
    text = "mov rax,1 ; <\n" * (HIGHLIGHTED_BYTES // 10)
    page = to_html({"text": text, "functions": []}, "asm", "asm")
    assert "mov rax,1 ; &lt;" in page
    assert "<span" not in page


def test_the_graph_has_a_cluster_for_each_relax_function_and_an_edge_for_each_operand():
    dot = to_dot(SNAPSHOT, "t")
    assert dot.count("subgraph") == 1
    assert '"main/x" -> "main/lv";' in dot
    assert '"main/lv" -> "main/return";' in dot
    assert '\\"float32\\"' in dot


def test_model_explorer_gets_one_graph_with_edges_and_the_kernel_of_a_call():
    collection = to_model_explorer(SNAPSHOT, "t", [{"module": "block.act", "source": "net.py:3: relu(x)"}])
    (graph,) = collection["graphs"]
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert nodes["lv"]["label"] == "relu"
    assert {"key": "flops", "value": "8"} in nodes["lv"]["attrs"]
    assert nodes["lv"]["namespace"] == "block/act"
    assert nodes["x"]["namespace"] == ""
    assert {"key": "source", "value": "net.py:3: relu(x)"} in nodes["lv"]["attrs"]
    assert nodes["return"]["incomingEdges"][0]["sourceNodeId"] == "lv"
    assert all(edge["sourceNodeId"] in nodes for node in graph["nodes"] for edge in node["incomingEdges"])
