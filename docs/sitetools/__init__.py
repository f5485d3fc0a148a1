"""What the documentation is checked and built with.

blocks.py           fenced blocks of a page: found, run, compared with what the page says they print
commands.py         ``mlsysim`` commands of shell blocks, run inside this process
links.py            links and anchors of a page
reference.py        the reference pages, from names, signatures, declared inputs and docstrings
formulas.py         formulas as MathML
explorer_links.py   designs of the wall pages as addresses of the explorer
hooks.py            what MkDocs calls
build.py            the whole site into a folder
"""
