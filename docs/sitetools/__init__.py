"""What the documentation is checked and built with.

blocks.py      fenced blocks of a page: found, run, compared with what the page says they print
commands.py    ``mlsysim`` commands of shell blocks, run inside this process
links.py       links and anchors of a page
reference.py   the reference pages, from names, signatures, declared inputs and docstrings
hooks.py       what MkDocs calls: reference pages, formulas as MathML, links into the explorer
"""
