"""Pictures of attention, as SVG, PNG or PDF: drawn plainly, with NumPy and nothing else.

    heatmap(seen, tokens=…)            weights as cells, tokens on the axes
    lines(weights, tokens=…)           a stroke from each query to each key, as thick as its weight
    head_grid(capture)                 layers × heads, coloured by a figure of their health
    patches(image, weights, grid=…)    what a vision model looks at, as light on its image

Each returns a Picture: `.svg()`, `.png()`, `.pdf()`, `.save("map.pdf")`; a notebook shows it by
itself.
"""

from limelight.pictures.head_grid import head_grid
from limelight.pictures.heatmap import heatmap
from limelight.pictures.lines import lines
from limelight.pictures.patches import patches
from limelight.pictures.scene import Picture

__all__ = ["Picture", "head_grid", "heatmap", "lines", "patches"]
