"""The worked example with every step in view, then the health of eight random heads."""

import numpy as np

import limelight as ll

print("One query against three keys\n")
print(ll.trace([[2, 1]], [[2, 1], [1, 0], [0, -1]], [[10, 0], [0, 8], [1, 1]]))

rng = np.random.default_rng(0)
sharpness = np.geomspace(0.25, 32, 8)[:, None, None]  # each head doubles its queries, or nearly
query, key, value = (rng.normal(size=(8, 512, 64)).astype(np.float32) for _ in range(3))
seen = ll.inspect(sharpness.astype(np.float32) * query, key, value, mask=ll.Causal())
print("\nEight causal heads of 512 tokens, each with longer queries than the one before\n")
print(seen.health)
