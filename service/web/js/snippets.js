// Code that asks for the same prediction from elsewhere.

const SHORT = 400;

const TYPES = {
  float32: "FP32",
  float64: "FP64",
  float16: "FP16",
  bfloat16: "BF16",
  bool: "BOOL",
  int8: "INT8",
  int16: "INT16",
  int32: "INT32",
  int64: "INT64",
  uint8: "UINT8",
  uint16: "UINT16",
  uint32: "UINT32",
  uint64: "UINT64",
};

/** Pairs of a language and its code; `protocol` says whether the server speaks the Open Inference Protocol at /v2. */
export function snippets(origin, compilation, inputs, protocol) {
  const { id, signature } = compilation;
  const body = JSON.stringify({ model: id, inputs });
  const data = body.length <= SHORT ? `-d '${body}'` : "-d @body.json";
  const write = body.length <= SHORT ? "" : `# body.json: ${body.slice(0, 160)} …\n`;
  const found = [
    ["curl", `${write}curl ${origin}/infer -H 'Content-Type: application/json' \\\n     ${data}`],
    ["Python", python(origin, id, signature)],
    ["curl, Open Inference Protocol", oipCurl(origin, id, signature, protocol)],
  ];
  if (protocol) found.push(["tritonclient", triton(origin, id, signature)]);
  return found;
}

const sizes = (spec) => spec.shape.map((size) => (typeof size === "number" ? size : 1));

function array(spec) {
  const shape = `(${sizes(spec).join(", ")}${spec.shape.length === 1 ? "," : ""})`;
  return `np.zeros(${shape}, "${spec.dtype}")`;
}

function python(origin, id, signature) {
  const values = signature.inputs.map((spec) => `        "${spec.name}": ${array(spec)},`).join("\n");
  return `import numpy as np\nimport relaxd\n\nwith relaxd.Client("${origin}") as client:\n    compilation = client.get("${id}")\n    outputs = compilation.infer({\n${values}\n    })\n    print({name: value.shape for name, value in outputs.items()})`;
}

function oipCurl(origin, id, signature, protocol) {
  const inputs = signature.inputs.map((spec) => ({
    name: spec.name,
    shape: sizes(spec),
    datatype: TYPES[spec.dtype],
    data: ["…"],
  }));
  return protocol
    ? `curl ${origin}/v2/models/${id}/infer -H 'Content-Type: application/json' \\\n     -d '${JSON.stringify({ inputs })}'`
    : `curl ${origin}/infer -H 'Content-Type: application/json' \\\n     -d '${JSON.stringify({ model: id, inputs })}'`;
}

function triton(origin, id, signature) {
  const inputs = signature.inputs
    .map(
      (spec, at) =>
        `input_${at} = httpclient.InferInput("${spec.name}", [${sizes(spec).join(", ")}], "${TYPES[spec.dtype]}")\ninput_${at}.set_data_from_numpy(${array(spec)})`,
    )
    .join("\n");
  return `import numpy as np\nimport tritonclient.http as httpclient\n\nclient = httpclient.InferenceServerClient("${origin.replace(/^https?:\/\//, "")}")\n${inputs}\nresult = client.infer("${id}", [${signature.inputs.map((_, at) => `input_${at}`).join(", ")}])\nprint(${signature.outputs.map((spec) => `result.as_numpy("${spec.name}").shape`).join(", ")})`;
}
