// The engine off the page's thread: CPython in WebAssembly, our modules, and calls by name.
//
// In:   {id, name, args}                                 call a function of mlsysim.labs.bridge
// Out:  {kind: "progress", text, done, total}            while loading; bytes
//       {kind: "ready", about, milliseconds}             once; calls are answered from now on
//       {kind: "failed", message}                        once, instead of ready
//       {kind: "answer", id, ok, value | error, errorKind}

import { whole } from "./whole.js";

const base = new URL("./", self.location.href);
const BESIDE = "/lib/python3.14";
const SITE = `${BESIDE}/site-packages`;
const LIBRARY = `${SITE}/pydantic_core/_pydantic_core.cpython-314-wasm32-emscripten.so`;
const plainFetch = self.fetch.bind(self);
let manifest = { files: {} };
let done = 0;
let total = 0;
let stage = "Loading";
let stop; // rejects `broken`
const broken = new Promise((_, reject) => { stop = reject; });
broken.catch(() => {}); // it is raced against below; until then nobody listens

function progress(text = stage) {
  stage = text;
  self.postMessage({ kind: "progress", text, done: Math.min(done, total), total });
}

// Bytes of what is fetched. Scripts (.js) are imported, and nobody tells how far they are.
function bytes(kind) {
  const files = Object.entries(manifest.files).filter(([name]) => kind.test(name) && !name.endsWith(".js"));
  return files.reduce((sum, [, file]) => sum + file.bytes, 0);
}

function missing(name, why) {
  const error = new Error(`The file ${name} of this site could not be loaded (${why}). Build the site again with ` +
    "`mlsysim labs build DIR`, or copy the whole folder.");
  stop(error); // Pyodide waits forever when its WebAssembly file is missing
  return error;
}

// Address of a file of this site; the hash in it keeps a browser from using a copy of an earlier build.
function address(name) {
  const known = manifest.files[name];
  const url = new URL(name, base);
  if (known) url.searchParams.set("v", known.sha256.slice(0, 12));
  return url;
}

// Everything that the runtime loads comes through here: from this site, counted, and with the right type for WebAssembly
// whatever the host says.
self.fetch = async (what, options) => {
  const url = new URL(what instanceof Request ? what.url : what, base);
  if (!url.href.startsWith(base.href)) throw missing(url.href, "it is outside of this site");
  const asked = decodeURIComponent(url.pathname.slice(base.pathname.length));
  const name = manifest.files[`${asked}.bin`] ? `${asked}.bin` : asked; // as it is, or compressed
  let response;
  try {
    response = await plainFetch(address(name), options);
  } catch (error) {
    throw missing(name, error.message);
  }
  if (!response.ok) throw missing(name, `the host answered ${response.status}`);
  const body = response.body.pipeThrough(counted());
  return name.endsWith(".bin") ? whole(new Response(body), asked.endsWith(".wasm") ? "application/wasm" : "") : new Response(body);
};

// The files of a package of modules, put where Python looks for them: lengths and names first, then the contents.
function unpack(buffer, { FS }, folder) {
  const head = new DataView(buffer).getUint32(0, true);
  let at = 4 + head;
  const folders = new Set();
  for (const [name, size] of JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, head)))) {
    const path = `${folder}/${name}`;
    const parent = path.slice(0, path.lastIndexOf("/"));
    if (!folders.has(parent)) FS.mkdirTree(parent);
    folders.add(parent);
    FS.writeFile(path, new Uint8Array(buffer, at, size), { canOwn: true });
    at += size;
  }
}

// Bytes as they arrive.
function counted() {
  return new TransformStream({
    transform(part, controller) {
      done += part.byteLength;
      progress();
      controller.enqueue(part);
    },
  });
}

// Python as it was after its start, where the build wrote its memory down (``snapshot.mjs``): the one library that is no Python is linked first, as it was
// then, and the memory put over that of a runtime in which nothing has run. That has to be the same one: a single byte more in what it was told shifts
// where everything after it is put, and two objects would share a place.
function remembered(createPyodideModule, memory) {
  return async (settings) => {
    const { locateFile } = settings;
    const module = await createPyodideModule(Object.assign(settings, {
      thisProgram: "python",
      dynamicLibraries: [LIBRARY],
      locateFile: (name) => (name === LIBRARY ? new URL("library.bin", base).href : locateFile(name)),
    }));
    const buffer = await memory;
    const [length] = new Uint32Array(buffer, 0, 1);
    const { heap, before, config } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    const words = new Uint32Array(buffer, 4 + length);
    const common = Math.min(words.length, module.HEAPU32.length);
    if (module.HEAPU32.length * 4 < heap) module._emscripten_resize_heap(heap);
    const held = module.HEAPU32;
    let sum = 0;
    for (let i = 0; i < common; i++) if (words[i]) sum = (Math.imul(sum, 31) + held[i]) | 0;
    if (sum !== before) throw new Error("Python did not start in this browser as it did when this site was built");
    for (let i = 0; i < words.length; i++) held[i] ^= words[i];
    module.API.restoreSnapshot = () => config;
    return module;
  };
}

// Where that memory does not fit: Python starts as it does elsewhere, from the modules that would have been in it, which takes a few seconds more.
async function ordinary(start, content, env) {
  total += bytes(/^pyodide\/|^(ordinary|library)\.bin$/);
  progress("Starting Python from its modules");
  const [modules, library] = await Promise.all([content("ordinary.bin"), content("library.bin")]);
  return start({
    env: { ...env, PYTHONPATH: BESIDE },
    fsInit: async (FS) => {
      unpack(modules, { FS }, "");
      FS.writeFile(LIBRARY, new Uint8Array(library), { canOwn: true });
    },
  });
}

async function moduleOf(name) {
  try {
    if (!manifest.files[`${name}.bin`]) return await import(address(name).href);
    const script = await (await self.fetch(new URL(name, base))).blob();
    return await import(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
  } catch (error) {
    throw missing(name, error.message);
  }
}

async function load() {
  if (typeof WebAssembly !== "object") {
    throw new Error("This browser has no WebAssembly, or it is switched off; use a current Firefox, Chrome, Edge or Safari.");
  }
  manifest = await (await self.fetch(new URL("manifest.json", base), { cache: "no-cache" })).json();
  total = bytes(/^pyodide\/|^(memory|library|engine)\.bin$/);

  progress("Loading Python");
  const content = (name) => self.fetch(new URL(name, base)).then((response) => response.arrayBuffer());
  const memory = manifest.files["memory.bin"] && content("memory.bin");
  const modules = content("engine.bin");
  for (const awaited of [memory, modules]) awaited?.catch(() => {}); // `broken` tells
  const [{ loadPyodide }, { default: createPyodideModule }] =
    await Promise.all([moduleOf("pyodide/pyodide.js"), moduleOf("pyodide/pyodide.asm.js")]);
  // No zoo of a user is in here; said so, it is not looked for at every look-up.
  const env = { HOME: "/home/pyodide", LANG: "C.UTF-8", _: "python", MLSYSIM_ZOO: "", PYTHONHASHSEED: "0" };
  const indexURL = new URL("pyodide/", base).href;
  const start = (options) => loadPyodide({ indexURL, stdLibURL: `${indexURL}python_stdlib.bin`, env, createPyodideModule, ...options });
  const python = await (memory
    ? start({ createPyodideModule: remembered(createPyodideModule, memory), _loadSnapshot: new Uint8Array(4) }).catch(() => ordinary(start, content, env))
    : start({}));

  progress("Unpacking the engine");
  unpack(await modules, python, SITE);
  progress("Starting the engine");
  // What is imported stays: looking for garbage after every few hundred objects, and among all that was imported, finds none.
  const garbage = python.pyimport("gc");
  garbage.set_threshold(100_000);
  const bridge = python.pyimport("mlsysim.labs.bridge");
  garbage.freeze();
  return bridge;
}

function answer(bridge, { id, name, args }) {
  const { ok, value, error, kind } = JSON.parse(bridge.call(name, JSON.stringify(args ?? {})));
  self.postMessage({ kind: "answer", id, ok, value, error, errorKind: kind });
}

const started = performance.now();
const waiting = [];
let bridge = null;
self.onmessage = ({ data }) => (bridge ? answer(bridge, data) : waiting.push(data));

Promise.race([load(), broken]).then((loaded) => {
  bridge = loaded;
  const about = JSON.parse(bridge.call("about")).value;
  self.postMessage({ kind: "ready", about, milliseconds: Math.round(performance.now() - started) });
  for (const request of waiting.splice(0)) answer(bridge, request);
}).catch((error) => {
  // Of a Python traceback the last line says what happened.
  self.postMessage({ kind: "failed", message: error.message.trim().split("\n").at(-1) });
});
