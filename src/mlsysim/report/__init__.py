"""A plan's answer as a document to hand on: one HTML file that needs nothing else, or Markdown.

build.py        the answer with sensitivities, designs around the plan, charts and sources
designs.py      what other batches, splits, formats and numbers of chips would do
figures.py      the charts            provenance.py   where each assumption comes from
content.py      the sections, made of blocks.py, which html.py and markdown.py render
formula.py      the walls' LaTeX as MathML
write.py        to a file, by its ending
"""
