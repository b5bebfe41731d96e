"""One HTML file with a whole run or comparison, which needs nothing else to be opened.

`page` assembles it: one section per file here, each a function of the `Content` (the runs and what
is shown of them) that returns its text and the numbers of its charts. The scripts in `static/` draw
the charts in the browser; tables show the same numbers.
"""
