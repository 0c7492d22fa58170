"""The report of a training run: one HTML file that needs nothing else.

``data.py`` says what goes in, ``page.py`` puts the page together; ``figures.py``, ``precision_recall.py``,
``confusion.py`` and ``mistakes.py`` find out what is worth showing; ``charts.py`` draws it.
"""

from mldecoder.training.report.data import ReportData as ReportData
from mldecoder.training.report.page import write_report as write_report

__all__ = ["ReportData", "write_report"]
