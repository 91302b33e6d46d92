"""The page that shows an output of `dasp explain`, `dasp report OUT.parquet PAGE.html`, or explanations: `dasp.report`.

    explained_rows  explanations from Python, as such an output
    contents     an output of `dasp explain`: what was explained, and what it says of every row
    statistics   the importance of players over all rows, with intervals, and the facts in words
    rows         single rows: waterfalls, pictures, texts, sequences, series
    render       the look of all pages, those of the reproduction of the paper as well
    write        the page from beginning to end

The page is one file and needs no network, nor any library: bars are HTML, so that names wrap on a phone, screen readers
read them, and colours follow the reader's settings; swarms, series and logos are drawn by some hundred lines of
JavaScript. (Plotly's script alone has 4.6 MB, its charts cannot be read without seeing them, and names do not wrap.)
"""

from dasp.pages.write import report, write_report

__all__ = ["report", "write_report"]
