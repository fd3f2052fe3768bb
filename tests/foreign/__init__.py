"""Others' tests of attention, run with limelight in its place."""
