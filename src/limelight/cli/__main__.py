"""`python -m limelight.cli` is `limelight`."""

from limelight.cli import main

main()
