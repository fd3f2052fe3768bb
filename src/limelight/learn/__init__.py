"""Learn: exercises, the saturation lab, projections, and the experiments that were run."""
