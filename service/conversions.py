"""For every kind of file that is not taken: what it is, and the lines of Python that make a `.pt2` of the model."""

from __future__ import annotations

from service.errors import UnsupportedFormat

_EXPORT = [
    "program = torch.export.export(model.eval(), (example_input,))",
    "torch.export.save(program, 'model.pt2')",
]
_REBUILD = "model = MyModel()  # your own nn.Module, with the arguments that it was trained with"
_LOAD = "model.load_state_dict(torch.load('FILE', map_location='cpu'))"

# Kind -> what the file is (after "The file is ") and the lines before the export.
_KINDS: dict[str, tuple[str, list[str]]] = {
    "state_dict": ("a state_dict or checkpoint of torch.save: weights without a model", [_REBUILD, _LOAD]),
    "cuda_checkpoint": (
        "a checkpoint of torch.save whose tensors lie on a GPU: weights without a model",
        [_REBUILD, _LOAD, "model = model.to('cpu')"],
    ),
    "module": (
        "an nn.Module pickled by torch.save, which only its own code can load",
        ["model = torch.load('FILE', weights_only=False, map_location='cpu')  # where its class can be imported"],
    ),
    "package": (
        "a torch.package archive, which carries code of its own",
        ["model = torch.package.PackageImporter('FILE').load_pickle(RESOURCE, map_location='cpu')"],
    ),
    "old_pt2": (
        "a .pt2 of an older PyTorch",
        ["model = torch.export.load('FILE').module()  # with the PyTorch that wrote it, then with PyTorch 2.13:"],
    ),
    "old_torch_save": (
        "a file of torch.save in the form of PyTorch before 1.6: a state_dict or a pickled module",
        [_REBUILD, _LOAD],
    ),
    "pickle": (
        "a pickle file, which relaxd never loads",
        [
            "import pickle",
            "model = pickle.load(open('FILE', 'rb'))  # your own file, where its classes can be imported",
        ],
    ),
    "safetensors": (
        "a safetensors file, which holds weights without a model",
        ["from safetensors.torch import load_file", _REBUILD, "model.load_state_dict(load_file('FILE'))"],
    ),
    "onnx": (
        "an ONNX model. relaxd takes the PyTorch model that it was exported from",
        [_REBUILD, "model.load_state_dict(torch.load('weights.pt', map_location='cpu'))"],
    ),
    "keras": (
        "a Keras or HDF5 model. relaxd takes PyTorch models",
        ["model = MyModel()  # the same layers as an nn.Module, with the Keras weights copied into them"],
    ),
    "tflite": ("a TensorFlow Lite model. relaxd takes PyTorch models", [_REBUILD]),
    "gguf": ("a GGUF file. relaxd takes PyTorch models", [_REBUILD]),
    "zip": ("a zip archive, but of no kind of model that relaxd knows", [_REBUILD]),
    "text": ("a text file. relaxd takes a saved model, not its code", [_REBUILD]),
    "unknown": ("of no kind that relaxd knows", [_REBUILD]),
}


def foreign(kind: str, detail: str | None = None) -> UnsupportedFormat:
    """The Problem for a file of that kind. `detail` is the class of a module or the resource of a package.

    Its `python` has the lines one by one.
    """
    what, lines = _KINDS[kind]
    if kind == "module" and detail is not None:
        what = f"an nn.Module ({detail}) pickled by torch.save, which only its own code can load"
    lines = ["import torch", *(line.replace("RESOURCE", detail or "'PACKAGE', 'NAME'") for line in lines), *_EXPORT]
    code = "; ".join(line.partition("  #")[0] for line in lines)
    return UnsupportedFormat(f"The file is {what}. Make a .pt2 of the model: `{code}`.", found=kind, python=lines)
