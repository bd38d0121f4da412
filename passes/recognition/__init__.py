"""Recognition of operators written out as several simpler ones: activations, norms, attention."""
