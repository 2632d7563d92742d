"""Drives the real Claude Code CLI offline: installer, stub of its API, processes, terminals."""
