"""What keeper assumes of each version, column by column, and what it does where an older one differs.

An era names the first and the last version in which an answer was seen; between two eras either answer is as assumed,
and what comes after the last one is assumed to be like it. Its facts and where the code uses them are in
docs/claude-on-disk.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from compat_doors import by_hook, by_shim, clears, folds, restores, typed
from compat_files import companions, continues, places, resumes, writes
from compat_life import hooks, nothing_kept, sweeps
from compat_trial import Question

from keeper.claude import version_of

OLDEST = "1.0.124"
"""The oldest that is supported. Up to 1.0.117 every resume writes a new id: kept and restored, never folded (FIT-2)."""
NOT_ASKED = "–"
"""The answer of a version that was not seen to do the thing in the time that the question takes."""


@dataclass(frozen=True, slots=True)
class Era:
    """An answer, from the first version that gave it to the last one before another did ("": to this day)."""

    answer: str
    since: str = OLDEST
    until: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    means: str
    """What is asked, and what the answers mean, in a sentence."""
    eras: tuple[Era, ...]
    does: str = ""
    """What keeper does about the versions that differ."""

    def assumed(self, version: str) -> tuple[str, ...]:
        """The answers that keeper is ready for, of that version; none before the oldest that it supports."""
        asked = version_of(version)
        began = [era for era in self.eras if version_of(era.since) <= asked]
        if not began:
            return ()
        last = began[-1]
        if not last.until or asked <= version_of(last.until):
            return (last.answer,)
        return tuple(dict.fromkeys((last.answer, self.eras[len(began)].answer)))


@dataclass(frozen=True, slots=True)
class Group:
    """Columns that stand in one table, and the questions that fill them."""

    name: str
    questions: tuple[Question, ...]
    columns: tuple[Column, ...]


def always(name: str, answer: str, means: str) -> Column:
    return Column(name, means, (Era(answer),))


GROUPS = (
    Group(
        "Where and how it writes",
        (places, writes, companions),
        (
            always(
                "folder", "by rule", "The project folder is named by the rule of the real path, odd characters too."
            ),
            Column(
                "long path",
                "The folder of a working directory of 230 characters: cut and hashed, or its name in full.",
                (Era("in full", until="2.1.45"), Era("hashed", "2.1.50")),
                "Both names are looked at, and a restore goes where the CLI in use looks (FIT-3).",
            ),
            always(
                "append", "by path", "Nothing is held open between turns; the next batch goes to the end of the name."
            ),
            always("link", "survives", "A second link to the transcript sees what comes later."),
            always(
                "deleted under it",
                "tail only",
                "Deleted under a running process, the file is made anew with what is new.",
            ),
            Column(
                "subagents",
                "Where a subagent's records are: the transcript itself, `agent-*.jsonl` beside it, the companion.",
                (
                    Era("transcript", until="2.0.20"),
                    Era("beside it", "2.0.28", "2.1.1"),
                    Era("companion", "2.1.2"),
                ),
                "All three places are kept and restored; the owner of a file beside is told by its records.",
            ),
            Column(
                "long output",
                "Where a long output of a tool is.",
                (Era("transcript", until="2.1.1"), Era("companion", "2.1.2")),
                "The companion is kept where there is one.",
            ),
        ),
    ),
    Group(
        "What a resume takes and where it goes on",
        (resumes, continues),
        (
            always("-p --resume", "same file", "A resume goes on in the same file, on the same inode."),
            Column(
                "-p --continue",
                "So does a continue.",
                (Era("another file", until=OLDEST), Era("same file", "2.0.14")),
                "The new file is a chat of its own, and tells where it was taken from.",
            ),
            Column(
                "typed --resume",
                "So does a resume on a terminal.",
                (Era("another file", until=OLDEST), Era("same file", "2.0.14")),
                "The other file's records name the session: it is kept in its chat, and a restore gives both (FIT-6).",
            ),
            Column(
                "missing",
                "A resume of what is not there ends with 1 and `No conversation found`, and asks nothing.",
                (
                    Era("refused", until="2.0.14"),
                    Era("refused, a 0-byte file", "2.0.76", "2.1.15"),
                    Era("refused", "2.1.40"),
                ),
                "A 0-byte file is no chat (FIT-5).",
            ),
            Column(
                "--continue takes",
                "Which of a directory's conversations a continue takes.",
                (Era("by other means", until="2.1.15"), Era("newest time", "2.1.40")),
                "Times are put back in their order; where the CLI does not ask for them that changes nothing.",
            ),
            Column(
                "--fork-session",
                "A fork is a new file with the same uuids, the original untouched; whose id its copied records carry.",
                (
                    Era("own ids", until="2.0.14"),
                    Era("the original's ids", "2.0.76", "2.1.61"),
                    Era("own ids", "2.1.110"),
                ),
                "Any record with the file's own id makes it its own chat (FIT-6).",
            ),
            Column(
                "from elsewhere",
                "Whether a session is found from another working directory.",
                (Era("not found", until="2.1.222"), Era("found", "2.1.234")),
                "`keeper restore` ends by naming the directory to resume from.",
            ),
            Column(
                "/clear in a stream",
                "What /clear does in a process without a terminal.",
                (Era("same id", until="2.1.116"), Era("new id", "2.1.120")),
                "One conversation that goes on is one chat, a new id is another.",
            ),
        ),
    ),
    Group(
        "What a resume reads",
        (),
        (
            always(
                "kept, then tail", "all", "Kept lines followed by a recreated file's: all turns load (so keeper folds)."
            ),
            Column(
                "tail, then kept",
                "The other way round, as the CLI wrote both: hangs on where its last `last-prompt` stands.",
                (Era("all", until="2.1.248"), Era("a part", "2.1.296")),
                "Never written: kept's order comes first. (Without such a record it is a part on 2.1.158 and 2.1.197.)",
            ),
            Column(
                "a record missing",
                "A record in the middle is not there: bridged by the order of the file, or all before it is cut off.",
                (Era("cuts off", until="2.1.85"), Era("bridged", "2.1.92")),
                "A fold is complete, or its gap is named; `restore --repaired` writes a whole one beside (FIT-8).",
            ),
            always("a uuid twice", "the later", "Two records of one uuid: the later in the file is read."),
            Column(
                "no last newline",
                "The next record after a line without an end is glued to it, or a newline goes first.",
                (Era("glued", until="2.1.296"), Era("sealed", "2.1.304")),
                "What keeper writes ends with a newline; a torn line is set aside before a resume.",
            ),
        ),
    ),
    Group(
        "Hooks",
        (hooks,),
        (
            always(
                "hooks", "all 6", "Which of the hooks that keeper asks for are called in two runs of -p and a /compact."
            ),
            always(
                "payload", "as read", "Each payload has the keys that keeper reads, and names the session's transcript."
            ),
            Column(
                "start at a resume",
                "The session id that SessionStart tells of a resume.",
                (Era("an id without a file", until="2.0.14"), Era("its id", "2.0.76")),
                "Not taken for a rotation, and nothing is kept of an id that never gets a file (FIT-4).",
            ),
            always(
                "start of a missing",
                "not called",
                "SessionStart is not called where the transcript is missing: hooks cannot restore.",
            ),
        ),
    ),
    Group(
        "Its clean-up",
        (sweeps, nothing_kept),
        (
            Column(
                "sweep",
                "When a process without a terminal runs it.",
                (
                    Era("at the start", until="2.1.40"),
                    Era("not in 15 s", "2.1.45", "2.1.129"),
                    Era("after 5 s", "2.1.140"),
                ),
                "The shim keeps before it starts a CLI that sweeps at once (FIT-7); any other is kept before it can.",
            ),
            always("swept by", "time, 30 days", "Each transcript by its own time, in every project, after 30 days."),
            Column(
                "its companion",
                "What becomes of a swept transcript's companion with fresh files.",
                (Era("stays", until="2.1.61"), Era("goes too", "2.1.110")),
                "A companion is kept as its transcript is, and what is missing of it comes back at every restore.",
            ),
            Column(
                "0 days",
                "What `cleanupPeriodDays: 0` does to transcripts.",
                (Era("none written", until="2.1.85"), Era("written", "2.1.92")),
                "keeper never writes 0 (FIT-9). What is not written cannot be kept.",
            ),
        ),
    ),
    Group(
        "With keeper",
        (restores, folds, typed, clears, by_hook, by_shim),
        (
            always("kept", "linked", "What a resume appends is kept as it is written: kept and live are one file."),
            always(
                "restored",
                "whole",
                "Deleted with all that belongs to it and put back: every file, and every turn loads.",
            ),
            always("its fork", "whole", "A fork of what was put back has the whole history."),
            always(
                "recreated", "folded", "Deleted under a running process and folded: one file again, every turn loads."
            ),
            always("typed turn", "back", "Typed in a resumed session on a terminal, and put back with that session."),
            Column(
                "cleared",
                "What is kept after a /clear in a stream.",
                (Era("one chat", until="2.1.116"), Era("two chats", "2.1.120")),
                "As the CLI has it: what goes on under one id is one chat.",
            ),
            always("keeper hook", "kept", "Kept by the CLI's hooks alone, and one chat."),
            always("shim", "whole", "Gone, and plain `claude --resume` with the shim on PATH has every turn."),
            always(
                "shim, past retention",
                "whole",
                "Never kept and older than the CLI's own retention: resumed by the shim it is read, and survives.",
            ),
        ),
    ),
)

COLUMNS = tuple(column for group in GROUPS for column in group.columns)
QUESTIONS = tuple(question for group in GROUPS for question in group.questions)
BY_PATIENCE = ("sweep", "after 10 min")
"""What is seen instead of `not in 15 s` by who waits."""


def drifted(version: str, answers: dict[str, str]) -> dict[str, str]:
    """The columns in which a version says what keeper is not ready for: column → what was seen and what assumed."""
    found = {}
    for column in COLUMNS:
        said, assumed = answers.get(column.name, NOT_ASKED), column.assumed(version)
        waited = (column.name, said) == BY_PATIENCE and "not in 15 s" in assumed
        if assumed and said not in (*assumed, NOT_ASKED) and not waited:
            found[column.name] = f"{said}, assumed {' or '.join(assumed)}"
    return found
