"""The command line: parse, call, print; one file a command group."""
