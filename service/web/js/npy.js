// Reads .npy files (numpy.save), for inputs.

const READERS = {
  f2: null,
  f4: Float32Array,
  f8: Float64Array,
  i1: Int8Array,
  i2: Int16Array,
  i4: Int32Array,
  i8: BigInt64Array,
  u1: Uint8Array,
  u2: Uint16Array,
  u4: Uint32Array,
  u8: BigUint64Array,
  b1: Uint8Array,
};

/** {shape, values} of an .npy file; values is a flat array of numbers. Throws an Error that says what is wrong. */
export function readNpy(buffer) {
  const bytes = new Uint8Array(buffer);
  if (bytes[0] !== 0x93 || String.fromCharCode(...bytes.slice(1, 6)) !== "NUMPY")
    throw new Error("This is no .npy file. Write it with numpy.save.");
  const view = new DataView(buffer);
  const [start, length] = bytes[6] === 1 ? [10, view.getUint16(8, true)] : [12, view.getUint32(8, true)];
  const header = new TextDecoder("latin1").decode(bytes.slice(start, start + length));
  const kind = /'descr':\s*'([<>|=])(\w+)'/.exec(header);
  const shape = (/'shape':\s*\(([^)]*)\)/.exec(header)?.[1] ?? "")
    .split(",")
    .map((part) => part.trim())
    .filter(Boolean)
    .map(Number);
  const Reader = READERS[kind?.[2]];
  if (!kind || kind[1] === ">" || !Reader)
    throw new Error(`Arrays of ${kind?.[2] ?? "objects"} cannot be read here; save it as float32 or int64.`);
  if (/'fortran_order':\s*True/.test(header))
    throw new Error("The array is in Fortran's order; save numpy.ascontiguousarray of it.");
  const count = shape.reduce((product, size) => product * size, 1);
  const data = new Reader(buffer.slice(start + length, start + length + count * Reader.BYTES_PER_ELEMENT));
  return { shape, values: Array.from(data, Number) };
}

/** A flat array as nested lists of a shape. */
export function nested(values, shape) {
  if (shape.length === 0) return values[0];
  let level = [...values];
  for (const size of shape.slice(1).reverse()) {
    const next = [];
    for (let at = 0; at < level.length; at += size) next.push(level.slice(at, at + size));
    level = next;
  }
  return level;
}
