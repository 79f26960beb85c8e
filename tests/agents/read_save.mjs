// Reads a saved agent without Python: checks the digest and prints its arrays as JSON.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { inflateSync } from "node:zlib";

const TOKEN = /\s*("(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:]+)/gy;
const SHORT = { "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\" };

class Text {
  // A number, true, false or null, as it is written.
  constructor(token) {
    this.token = token;
  }
}

function parse(text) {
  const tokens = [...text.matchAll(TOKEN)].map((match) => match[1]);
  let next = 0;
  function value() {
    const token = tokens[next++];
    if (token.startsWith('"')) return JSON.parse(token);
    if (token === "[") return list("]", value);
    if (token === "{") return new Map(list("}", member));
    return new Text(token);
  }
  function member() {
    const key = JSON.parse(tokens[next++]);
    next++; // the colon
    return [key, value()];
  }
  function list(end, item) {
    const items = [];
    while (tokens[next] !== end) {
      items.push(item());
      if (tokens[next] === ",") next++;
    }
    next++;
    return items;
  }
  return value();
}

function quoted(text) {
  const escape = (unit) => SHORT[unit] ?? "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0");
  return `"${text.replace(/[^\x20-\x7e]|["\\]/g, escape)}"`;
}

function canonical(value) {
  if (value instanceof Text) return value.token;
  if (typeof value === "string") return quoted(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  const keys = [...value.keys()].sort();
  return `{${keys.map((key) => `${quoted(key)}:${canonical(value.get(key))}`).join(",")}}`;
}

function elements(array) {
  const kind = array.get("dtype");
  const packed = Buffer.from(array.get("data") ?? array.get("deflated"), "base64");
  const bytes = array.has("deflated") ? inflateSync(packed) : packed;
  const width = kind === "|b1" ? 1 : 8;
  return Array.from({ length: bytes.length / width }, (_, i) => {
    if (kind === "<f8") return bytes.readDoubleLE(8 * i);
    return kind === "<i8" ? Number(bytes.readBigInt64LE(8 * i)) : bytes[i];
  });
}

const save = parse(readFileSync(process.argv[2], "utf8"));
const digest = save.get("digest");
save.delete("digest");
const found = createHash("sha256").update(canonical(save), "ascii").digest("hex");
const arrays = [...save.get("state")].map(([name, array]) => [name, elements(array).map(String)]);
console.log(JSON.stringify({ intact: found === digest, arrays: Object.fromEntries(arrays) }));
