// node snapshot.mjs LIBRARY START OUT: the memory of Python once the modules beside it are imported and the functions of START were called.
//
// In    modules.bin   what Python finds (``package.packed``), and LIBRARY among it, the one module that is no Python
// Out   memory.bin    length of a JSON in four bytes, that JSON ({ heap, before, config }), then words: the memory, less (exclusive or) that of a runtime
//                     in which nothing has run yet, up to the last that differs; ``before`` is a sum of what that had where they differ
//       held.json     files of the modules that are in it
//
// The library is linked before anything runs, so that it lies at the same place here and in a page; Python finds an empty file of its name.
import chance from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import createPyodideModule from "./pyodide.asm.js";
import { loadPyodide } from "./pyodide.js";

const [library, start] = process.argv.slice(2);
const SITE = "/lib/python3.14/site-packages/";
// As in worker.js, to the letter: what a runtime is told lies in its memory before anything has run, and what follows lies behind it.
const env = { HOME: "/home/pyodide", LANG: "C.UTF-8", _: "python", MLSYSIM_ZOO: "", PYTHONHASHSEED: "0" };

// The same memory from every build: no time and no chance in it.
Date.now = () => 315532800000;
performance.now = () => 0;
chance.randomFillSync = crypto.getRandomValues = (bytes) => bytes.fill(1);

let untouched;
function linked(settings) {
  const { locateFile } = settings;
  return createPyodideModule(Object.assign(settings, {
    thisProgram: "python",
    dynamicLibraries: [SITE + library],
    locateFile: (name) => (name === SITE + library ? "library.so" : locateFile(name)),
    onRuntimeInitialized: () => { untouched = settings.HEAPU32.slice(); },
  }));
}

const file = readFileSync("modules.bin");
const head = file.readUInt32LE(0);
let at = 4 + head;
const modules = JSON.parse(file.subarray(4, at)).map(([name, size]) => [name, file.subarray(at, (at += size))]);
writeFileSync("library.so", modules.find(([name]) => name === library)[1]);

const python = await loadPyodide({ createPyodideModule: linked, env, _makeSnapshot: true });
for (const [name, content] of modules) {
  const path = SITE + name;
  python.FS.mkdirTree(path.slice(0, path.lastIndexOf("/")));
  python.FS.writeFile(path, name === library ? new Uint8Array(0) : content);
}
const held = python.runPython(`
import gc, importlib, json, sys

gc.set_threshold(100_000)
importlib.invalidate_caches()  # the clock stands: folders look as they did when they were empty
from mlsysim.labs import bridge, explorer

for name, given in json.loads(${JSON.stringify(start)}):
    assert json.loads(bridge.call(name, json.dumps(given)))["ok"], name
explorer.forget()
importlib.invalidate_caches()
gc.collect()
gc.freeze()
json.dumps(sorted(filter(None, (getattr(each, "__cached__", None) or getattr(each, "__file__", None) for each in sys.modules.values()))))
`);
// What was given back still has its bytes: they are taken once more, as zeros.
python.runPython(`
def wipe():
    held, top = [], id(bytes(8 << 20))
    sizes = [size << power for power in range(20, 7, -1) for size in (6, 5, 4)] + [*range(512, 32, -16)]
    for size in sizes:
        while not held or id(held[-1]) < top:
            held.append(bytes(size - 33))
        held.pop()

wipe()
del wipe
gc.collect()
`);
const { API } = python._module;
const config = API.serializeHiwireState();
const heap = python._module.HEAPU8;
const words = new Uint32Array(heap.buffer.slice(0));
const bound = (name) => python._module.resolveGlobalSymbol(`emscripten_stack_get_${name}`).sym() >>> 2;
const [low, high] = ["end", "base"].map(bound);
let before = 0;
for (let i = 0; i < untouched.length; i++) {
  words[i] = low <= i && i < high ? 0 : words[i] ^ untouched[i]; // on the stack is what calls that are over left there
  if (words[i]) before = (Math.imul(before, 31) + untouched[i]) | 0;
}
let end = words.length;
while (end && !words[end - 1]) end--;
const text = new TextEncoder().encode(JSON.stringify({ heap: heap.length, before, config }));
const padded = new Uint8Array(4 * Math.ceil(text.length / 4)).fill(32);
padded.set(text);
writeFileSync("memory.bin", Buffer.concat([
  new Uint8Array(new Uint32Array([padded.length]).buffer), padded, new Uint8Array(words.buffer, 0, 4 * end),
]));
writeFileSync("held.json", held);
