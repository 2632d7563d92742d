"""`keeper restore SESSION…` answers the same whether click reads the line or nothing but the entry does."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.running import running
from tests.build import CWD, append, jsonl, prompt, session_id, talk, write_live
from tests.chat import put, sweep, write_whole
from tests.seam import world

S, T, NEVER = session_id(1), session_id(2), session_id(9)
FORM = """
import sys
from keeper import claude
claude.running_profiles = lambda *_: []
{before}
from keeper.cli.{entry} import main
sys.argv = ["keeper", *{words}]
try:
    main()
finally:
    print(*(name for name in ("click", "keeper.transcripts") if name in sys.modules), file=open({told!r}, "w"))
"""
BY_CLICK, PLAIN = "main", "entry"


class Forms:
    """Runs both forms of a line; each finds the profile as `before` leaves it."""

    def __init__(self, env: dict[str, str], told: Path) -> None:
        self.env = env
        self.told = told

    def run(self, entry: str, words: list[str], before: str = "", **env: str) -> tuple[int, bytes, bytes]:
        """The exit code, stdout and stderr."""
        code = FORM.format(entry=entry, words=words, before=before, told=str(self.told))
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**self.env, **env},
            cwd=self.told.parent,
            capture_output=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def loaded_click(self) -> bool:
        return "click" in self.loaded()

    def loaded(self) -> list[str]:
        """What the last run has loaded: of click and the core."""
        return self.told.read_text().split()


@pytest.fixture
def forms(cli_env: dict[str, str], tmp_path: Path) -> Forms:
    return Forms(cli_env, tmp_path / "told")


@pytest.fixture
def kept(profile: Path, vault_home: Path, home: Path) -> Path:
    """Two kept chats; answers the first one's live transcript."""
    live = write_whole(profile, S)
    write_live(profile, CWD, T, jsonl(*talk("pqrs", T)))
    world(profile, vault_home, home / ".local" / "state" / "keeper").keep_all()
    return live


LINES = [[S], [S, "--json"], ["--json", S, "--json"], [S, T], [S, NEVER, "--json"], [NEVER, S], [NEVER], ["../x"], [""]]


@pytest.mark.parametrize("swept", [False, True], ids=["whole", "swept"])
@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_both_forms_answer_the_same(words: list[str], swept: bool, kept: Path, profile: Path, forms: Forms) -> None:
    answers = []
    for entry in (BY_CLICK, PLAIN):
        if swept:
            sweep(profile)
        answers.append(forms.run(entry, ["restore", *words]))
        assert forms.loaded_click() is (entry == BY_CLICK)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("json", [[], ["--json"]], ids=["text", "json"])
def test_both_forms_say_what_they_warn_of(json: list[str], kept: Path, forms: Forms) -> None:
    """Another branch than the one that a resume reads, a directory that is gone: on stderr, or in the answer."""
    kept.write_bytes(jsonl(*talk("ab", S)))
    append(kept, jsonl(prompt("e", "b", session=S)))
    by_click, plain = (forms.run(entry, ["restore", S, *json]) for entry in (BY_CLICK, PLAIN))
    assert by_click == plain
    assert b"--branch d" in plain[1] + plain[2]


@pytest.mark.parametrize("json", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize(
    ("before", "code"),
    [
        (f"import os\nfrom keeper import disk\ndisk.hook = lambda *_: os.kill(os.getpid(), {int(signal.SIGINT)})", 130),
        ("from keeper import disk\ndef hook(*_): raise OSError(28, 'No space left on device')\ndisk.hook = hook", 1),
        ("from keeper.transcripts import vault\nvault.VERSION = '9'", 7),
        ("from keeper import files\ndef read(*_): raise BrokenPipeError(32, 'Broken pipe')\nfiles.read = read", 1),
    ],
    ids=["interrupted", "full", "damaged", "nobody reads"],
)
def test_both_forms_fail_the_same(
    before: str, code: int, json: list[str], kept: Path, profile: Path, forms: Forms
) -> None:
    answers = []
    for entry in (BY_CLICK, PLAIN):
        sweep(profile)
        answers.append(forms.run(entry, ["restore", S, *json], before))
    assert answers[0] == answers[1]
    assert answers[0][0] == code
    assert b"Traceback" not in answers[0][2]


@pytest.mark.parametrize("words", [[], ["--json"], ["--nonsense", S], [S, "--full"], ["--", S], ["-h"], ["--all", S]])
def test_what_has_further_options_or_names_nothing_is_read_by_click(
    words: list[str], kept: Path, forms: Forms
) -> None:  # fmt: skip
    by_click, plain = (forms.run(entry, ["restore", *words]) for entry in (BY_CLICK, PLAIN))
    assert by_click == plain
    assert forms.loaded_click()


@pytest.mark.parametrize("entry", [BY_CLICK, PLAIN])
def test_an_encoding_that_has_not_the_character_has_it_escaped(entry: str, kept: Path, forms: Forms) -> None:
    told = forms.run(entry, ["restore", "é"], PYTHONIOENCODING="ascii")
    assert told[0] == 8
    assert rb"\xe9" in told[2]


@pytest.mark.parametrize("entry", [BY_CLICK, PLAIN])
def test_with_a_closed_stderr_nothing_of_it_goes_to_stdout(entry: str, kept: Path, forms: Forms) -> None:
    told = forms.run(entry, ["restore", NEVER], "import os; os.close(2); sys.stderr = None")
    assert told[:2] == (4, b"")


@pytest.mark.parametrize("entry", [BY_CLICK, PLAIN])
def test_without_a_rule_no_other_process_is_looked_at(entry: str, kept: Path, forms: Forms) -> None:
    """It is what a restore of one session would wait longest for."""
    told = forms.run(entry, ["restore", S], "def looked(*_): raise OSError('looked')\nclaude.running_profiles = looked")
    assert told[0] == 0


@pytest.mark.accepts("RESTORE-7")
@pytest.mark.parametrize("swept", [False, True], ids=["whole", "swept"])
@pytest.mark.parametrize("json", [[], ["--json"]], ids=["text", "json"])
def test_where_an_agent_runs_it_does_it_and_the_answer_is_the_same(
    json: list[str], swept: bool, kept: Path, profile: Path, forms: Forms
) -> None:
    whole = kept.read_bytes()
    answers = []
    with running(forms.env):
        for entry, loads in ((BY_CLICK, ["click", "keeper.transcripts"]), (PLAIN, [])):
            if swept:
                sweep(profile)
            answers.append(forms.run(entry, ["restore", S, *json]))
            assert forms.loaded() == loads
            assert kept.read_bytes() == whole
        assert answers[0] == answers[1]
        assert answers[0][0] == 0
        # What the agent cannot is for this process, and fails as it does without one.
        assert forms.run(BY_CLICK, ["restore", NEVER, *json]) == forms.run(PLAIN, ["restore", NEVER, *json])


@pytest.mark.accepts("FIT-3")
def test_where_the_folder_hangs_on_the_cli_the_agent_leaves_it_to_the_door(
    profile: Path, vault_home: Path, home: Path, forms: Forms, tmp_path: Path
) -> None:
    cwd = "/srv/" + "long-" * 50
    live = write_live(profile, cwd, S, jsonl(*talk("ab", S, cwd=cwd)))
    world(profile, vault_home, home / ".local" / "state" / "keeper").keep_all()
    claude = put(tmp_path / "bin" / "claude", b"#!/bin/sh\necho 2.1.328\n")
    claude.chmod(0o700)
    with running(forms.env):
        sweep(profile)
        code, said, _ = forms.run(PLAIN, ["restore", S], PATH=f"{claude.parent}:{forms.env['PATH']}")
        assert (code, "keeper.transcripts" in forms.loaded()) == (0, True), said
    assert not live.exists()
    assert len(list(profile.glob(f"projects/*/{S}.jsonl"))) == 1


@pytest.mark.accepts("RESTORE-9")
@pytest.mark.parametrize("entry", [BY_CLICK, PLAIN])
def test_what_was_never_kept_and_is_gone_has_its_prompts_offered(
    entry: str, kept: Path, profile: Path, forms: Forms
) -> None:
    lines = [f'{{"display":"prompt {n}","sessionId":"{NEVER}","timestamp":{n}}}' for n in range(3)]
    put(profile / "history.jsonl", "\n".join(lines).encode())
    code, said, told = forms.run(entry, ["restore", NEVER])
    assert (code, said) == (4, b"")
    assert f"history.jsonl still holds 3 of its prompts: `keeper resume {NEVER} --prompts`".encode() in told
    assert b"history" not in forms.run(entry, ["restore", session_id(8)])[2]
