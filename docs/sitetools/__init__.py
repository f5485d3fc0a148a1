"""What the documentation is checked and built with.

blocks.py           fenced blocks of a page: found, run, compared with what the page says they print
commands.py         ``mlsysim`` commands of shell blocks, run inside this process
links.py            links and anchors of a page
reference.py        the reference pages, from names, signatures, declared inputs and docstrings
options.py          the page of all options and keys
zoo.py              the zoo's tables
flow.py, rooms.py   one question's way through the rooms, and the rooms
formulas.py         formulas as MathML
pictures/           what the pages' pictures show, each drawn from answers
figures.py          a page's pictures with caption, for a screen and for a phone
explorer_links.py   designs of the wall pages as addresses of the explorer
pages.py            all pages as plain Markdown, which any generator renders
build.py            the whole site into a folder
"""
