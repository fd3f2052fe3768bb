"""One sequence over several ranks: context_parallel in attention.py, and what it costs."""
