"""The training monitor: Monitor in monitor.py, its alarms, and its file, which needs no torch."""
