"""Labs: the engine in the browser, from a folder of static files.

fetch    what comes from the public registries, pinned by hash (``lock.toml``)
build    the folder: site, runtime, modules, manifest
package  what Python finds in a page: its library, the wheels and our own package, in two files; ``bytecode`` compiles them
serve    the folder on a loopback port
rpc      functions that a page may call by name, JSON in and out
bridge   the functions themselves
explorer what the explorer asks, with charts of its answers; ``catalogue`` is what its menus and controls offer
lab      a lab as data: one TOML file under ``content/``; ``expression`` is its arithmetic, ``scope`` what it computes
grading  answers against what the engine says; ``codes`` for those who teach
runner   what the page of a lab asks, and whether it works for every student; ``lab_charts`` draws it
site/    pages, worker and client as they are served
"""
