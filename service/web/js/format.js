// Numbers and names as people read them.

const THOUSANDS = new Intl.NumberFormat("en");

export const count = (value) => THOUSANDS.format(value);

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function milliseconds(value) {
  if (value >= 1000) return `${(value / 1000).toFixed(value >= 10_000 ? 1 : 2)} s`;
  return `${value >= 100 ? Math.round(value) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} ms`;
}

export function microseconds(value) {
  if (value >= 10_000) return milliseconds(value / 1000);
  return `${value >= 100 ? Math.round(value) : value.toFixed(value >= 10 ? 1 : 2)} µs`;
}

export const percent = (value) => `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`;

export function scientific(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value;
  return value === 0 ? "0" : value.toExponential(1).replace("e-", "e−").replace("e+", "e");
}

export function rate(value, unit) {
  const prefixes = ["", "K", "M", "G", "T"];
  let prefix = 0;
  while (value >= 1000 && prefix < prefixes.length - 1) {
    value /= 1000;
    prefix += 1;
  }
  return `${value >= 100 ? Math.round(value) : value.toFixed(1)} ${prefixes[prefix]}${unit}`;
}

export const shape = (spec) => `${spec.dtype} [${spec.shape.join(", ")}]`;

export const signed = (value) => (value > 0 ? `+${value}` : `−${-value}`);

/** How a step is called: its pass, the import, or what the build made. */
export function stepName(step) {
  if (step.innerName) return `${stepName({ ...step, innerName: null })} › ${step.innerName}`;
  if (step.pass) return step.pass;
  return (
    { import: "import", vm: "VM bytecode", tir: "lowered TIR", llvm: "LLVM IR", asm: "assembly" }[step.stage] ??
    step.stage
  );
}

export const shortId = (id) => id.slice(0, 8);
