"""One HTML file that holds a whole run or comparison, and needs nothing else to be opened.

`page` puts it together: one section per file here, each a function of the `Story` (the runs and
what is shown of them) that returns its text and the numbers its charts are drawn of. The charts are
drawn in the browser by the scripts in `static/`; what they show is in tables as well.
"""
