"""Report: a capture as one HTML file that opens anywhere, without a server or a network."""

from limelight.report.comparison import comparison_page, write_comparison
from limelight.report.page import Written, report, write_report
from limelight.report.survey import survey_page, write_survey
from limelight.views.bundle import Bundle, bundle

__all__ = [
    "Bundle",
    "Written",
    "bundle",
    "comparison_page",
    "report",
    "survey_page",
    "write_comparison",
    "write_report",
    "write_survey",
]
