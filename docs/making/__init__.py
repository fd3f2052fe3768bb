"""What docs/make.py makes pages and pictures with."""
