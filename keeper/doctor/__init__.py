"""Doctor: facts of vault, profiles, ways in and machine, gathered by looking, and judged into checks."""
