"""Records become tables, figures and a page; nothing here trains, and no number is typed in."""

from fastgrl.reports.writing import Report, write_report

__all__ = ["Report", "write_report"]
