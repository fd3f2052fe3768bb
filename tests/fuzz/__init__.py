"""Hostile files: those found by attack (corpus), any number more (mutate), over every reader.

python -m tests.fuzz --inputs 500    prints how many inputs went through which reader, and how
"""
