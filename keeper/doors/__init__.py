"""Doors: the ways into keeper for other programs."""
