"""The background process: watches the profiles, keeps what it is told of and what it finds, answers the doors."""
