"""Keeps Claude Code conversations and puts them back before a resume.

`keeper.keep(session)` and `keeper.restore(session)` are the two verbs for other programs; they are imported
only when first asked for, so that `import keeper` costs nothing.

Everything else is behind the `keeper` command or in the modules that the README's table names.
"""

TYPE_CHECKING = False  # what type checkers know by that name, without loading `typing`: the fast doors pay for it
if TYPE_CHECKING:
    from keeper.doors.python import keep, restore

__version__ = "0.1.0"
__all__ = ["__version__", "keep", "restore"]


def __getattr__(name: str) -> object:
    if name in ("keep", "restore"):
        from keeper.doors import python

        return getattr(python, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
