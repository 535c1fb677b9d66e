"""The screens of the live view: overview, output, help."""
