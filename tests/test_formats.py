"""Files are recognised by what is in them, whatever they are called."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import pytest

from service.conversions import _KINDS, foreign
from service.errors import DamagedModel, EmptyModel, InvalidField, UnsupportedFormat
from service.formats import recognise
from service.nouns import ModelFormat
from service.pickles import pickle_facts


def zip_of(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


def pickled(module: str, name: str, *texts: str) -> bytes:
    """A pickle that names one global and holds some texts."""
    parts = b"".join(b"X" + len(text).to_bytes(4, "little") + text.encode() for text in texts)
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + b"(" + parts + b"tR."


def recognised(tmp_path: Path, content: bytes, wanted: str = "auto") -> ModelFormat:
    (tmp_path / "upload").write_bytes(content)
    return recognise(tmp_path / "upload", wanted)


PT2 = zip_of({"m/archive_format": b"pt2", "m/models/model.json": b"{}"})
SCRIPT = zip_of({"m/data.pkl": b"", "m/code/__torch__.py": b"", "m/constants.pkl": b""})
FX = zip_of({"m/data.pkl": pickled("torch.fx.graph_module", "reduce_graph_module")})


@pytest.mark.parametrize(
    ("content", "expected"),
    [(PT2, ModelFormat.EXPORTED_PROGRAM), (SCRIPT, ModelFormat.TORCHSCRIPT), (FX, ModelFormat.FX)],
)
def test_the_three_formats_are_recognised(tmp_path: Path, content: bytes, expected: ModelFormat) -> None:
    assert recognised(tmp_path, content) is expected
    assert recognised(tmp_path, content, expected.value) is expected
    for other in ModelFormat:
        if other is not expected:
            with pytest.raises(InvalidField) as caught:
                recognised(tmp_path, content, other.value)
            assert caught.value.extensions == {"field": "format", "found": expected.value}


TENSOR = ("torch._utils", "_rebuild_tensor_v2")
REFUSED = {
    "state_dict": zip_of({"m/data.pkl": pickled(*TENSOR, "storage", "cpu"), "m/version": b"3"}),
    "cuda_checkpoint": zip_of({"m/data.pkl": pickled(*TENSOR, "storage", "cuda:0")}),
    "module": zip_of({"m/data.pkl": pickled("project.nets", "Net")}),
    "package": zip_of({"m/.data/version": b"6", "m/model/net.pkl": b""}),
    "old_pt2": zip_of({"serialized_exported_program.json": b"{}"}),
    "old_torch_save": b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.",
    "pickle": pickle.dumps({"a": 1}),
    "safetensors": (64).to_bytes(8, "little") + b'{"a":{}}' + bytes(60),
    "onnx": b"\x08\x07\x12\x07pytorch" + bytes(50),
    "keras": zip_of({"config.json": b"{}", "metadata.json": b"{}"}),
    "tflite": b"\x1c\x00\x00\x00TFL3",
    "gguf": b"GGUF\x03\x00",
    "zip": zip_of({"a": b"b"}),
    "text": b"import torch\n",
    "unknown": bytes(range(1, 200)),
}


def test_every_kind_that_is_not_taken_is_tried() -> None:
    assert set(REFUSED) == set(_KINDS)


@pytest.mark.parametrize("kind", REFUSED)
def test_other_files_are_named_with_the_way_to_a_pt2(tmp_path: Path, kind: str) -> None:
    with pytest.raises(UnsupportedFormat) as caught:
        recognised(tmp_path, REFUSED[kind])
    assert caught.value.extensions["found"] == kind
    lines = caught.value.extensions["python"]
    assert lines[-1] == "torch.export.save(program, 'model.pt2')"
    compile("\n".join(lines), "python", "exec")
    assert "torch.export.export(model.eval(), (example_input,))" in caught.value.detail


def test_a_pickled_module_is_named_by_its_class(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFormat, match=r"an nn.Module \(project.nets.Net\)"):
        recognised(tmp_path, REFUSED["module"])


def test_a_package_is_loaded_by_its_own_resource() -> None:
    assert "load_pickle('model', 'net.pkl'" in "".join(foreign("package", "'model', 'net.pkl'").extensions["python"])


def test_a_pickle_is_listed_and_never_loaded() -> None:
    facts = pickle_facts(io.BytesIO(pickled("os", "system", "touch /tmp/never")))
    assert facts.class_name == "os.system"


@pytest.mark.parametrize("content", [b"", b"\x80", b"\x80\x02c", b"\xff" * 50, b"(" * 100_000])
def test_a_damaged_pickle_has_no_facts(content: bytes) -> None:
    assert not pickle_facts(io.BytesIO(content)).is_graph_module


def test_an_empty_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(EmptyModel):
        recognised(tmp_path, b"")


@pytest.mark.parametrize("keep", [4, 40, -1, -30])
def test_an_archive_that_is_cut_short_is_damaged(tmp_path: Path, keep: int) -> None:
    with pytest.raises(DamagedModel):
        recognised(tmp_path, PT2[:keep])


def test_a_pt2_without_a_program_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(DamagedModel, match="no exported program"):
        recognised(tmp_path, zip_of({"m/archive_format": b"pt2"}))
