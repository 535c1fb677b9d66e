"""A run directory and its journals: made, followed while they grow, folded within a disk budget."""
