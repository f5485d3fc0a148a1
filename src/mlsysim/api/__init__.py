"""Programs that call: the same operations over HTTP and as tools of the Model Context Protocol.

requests.py      what each operation takes, typed; JSON Schema comes from here
examples.toml    requests that run, for the descriptions of both faces
description.toml statuses, addresses and schemas that are no operation's
responses.py     what each operation answers, typed
service.py       the operations: JSON in, JSON out, errors as one sentence; knows no transport
words.py         answers in words, for who reads text
searches.py      optimizers and sweeps within limits
documents.py     JSON that can be trusted: finite, not too deep, each key once
workers.py       processes that compute, ended when they take too long or too much memory
worker.py        what runs in one of them
limits.py        the limits and their defaults
http_server.py   the HTTP face (extra ``api``)
origins.py       pages of other origins, where they may ask
page.py, page/   the page that shows the operations and tries them
openapi.py       its description, OpenAPI 3.1
mcp_server.py    the Model Context Protocol face (extra ``mcp``)
tools.py         what a model reads of its tools

No operation takes a path, reads a file that a client names, or writes anything.
"""
