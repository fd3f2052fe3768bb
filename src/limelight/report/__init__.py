"""Report: a capture as one HTML file that opens anywhere, without a server or a network."""

from limelight.report.bundle import Bundle, bundle
from limelight.report.page import Written, report, write_report

__all__ = ["Bundle", "Written", "bundle", "report", "write_report"]
