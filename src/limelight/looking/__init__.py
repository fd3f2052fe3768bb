"""Looking: any part of a weight matrix of any size, without the matrix."""
