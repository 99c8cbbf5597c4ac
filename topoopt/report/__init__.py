"""Reports: one self-contained HTML page of a plan, a comparison or an experiment's results.

A page opens offline: style, script, data and pictures are in it. `write_report` writes one;
`topoopt.report.notebook` makes the compact form that notebooks show.
"""

from topoopt.report.write import render_report, write_report

__all__ = ["render_report", "write_report"]
