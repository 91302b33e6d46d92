"""The page that shows an output of `dasp explain`: `dasp report OUT.parquet PAGE.html`.

    contents     reads an output: what was explained, and what is known of every row
    importance   which players matter over all rows, with intervals
    details      what the page shows of single rows: waterfalls, pictures, texts, sequences
    page         the look of all pages, those of `dasp reproduce` as well

The page is one file and needs no network, nor any library: bars are HTML, so that names wrap on a phone, screen readers
read them, and colours follow the reader's settings; swarms, series and logos are drawn by some hundred lines of
JavaScript. (Plotly's script alone has 4.6 MB, its charts cannot be read without seeing them, and names do not wrap.)
"""

from dasp.report.report import write_report

__all__ = ["write_report"]
