"""Widgets of lines: each draws only the cells that changed."""
