// node compile.mjs SOURCES.zip COMPILED.zip: each source of an archive compiled by the runtime beside this file, under the same name.
import { readFileSync, writeFileSync } from "node:fs";
import createPyodideModule from "./pyodide.asm.js";
import { loadPyodide } from "./pyodide.js";

const [sources, compiled] = process.argv.slice(2);
const env = { HOME: "/home/pyodide", PYTHONHASHSEED: "0", PYTHONNODEBUGRANGES: "1" };
const python = await loadPyodide({ createPyodideModule, env });
python.FS.writeFile("/sources.zip", readFileSync(sources));
python.runPython(`
import importlib._bootstrap_external as bootstrap
import types
import zipfile


def lean(code):
    """Without its lines: runs of up to eight instructions that have none (Objects/locations.md of CPython), of which Python says so in a traceback."""
    whole, rest = divmod(len(code.co_code) // 2, 8)
    held = tuple(lean(each) if isinstance(each, types.CodeType) else each for each in code.co_consts)
    return code.replace(co_consts=held, co_linetable=bytes([255] * whole + [247 + rest] * bool(rest)))


with zipfile.ZipFile("/sources.zip") as given, zipfile.ZipFile("/compiled.zip", "w") as made:
    for name in given.namelist():
        code = compile(given.read(name), name, "exec", dont_inherit=True, optimize=2)
        made.writestr(name, bytes(bootstrap._code_to_hash_pyc(lean(code), bytes(8), False)))
`);
writeFileSync(compiled, python.FS.readFile("/compiled.zip"));
