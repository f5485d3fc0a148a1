"""Labs: the engine in the browser, from a folder of static files.

fetch    what comes from the public registries, pinned by hash (``lock.toml``)
wheel    our own package as a wheel for the browser
build    the folder: site, runtime, wheels, manifest
serve    the folder on a loopback port
rpc      functions that a page may call by name, JSON in and out
bridge   the functions themselves
site/    pages, worker and client as they are served
"""
