"""The comparisons of the paper, repeated with methods of today."""
