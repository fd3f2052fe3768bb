"""Worked: every step of an attention that a person can read."""
