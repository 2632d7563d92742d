"""Keeper's hooks in a settings file: everybody else's bytes stay, and taking them out gives back what was there."""

import errno
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from keeper import disk
from keeper.doors import hooks, json_text
from keeper.doors.hook import EVENTS, WAIT_S
from keeper.errors import DiskError, Refused
from tests.seam import before, changes_of, failing, hooked, refusing

PROGRAM = "/opt/keeper/bin/keeper"
FULL = """\ufeff{
\t"permissions" : { "allow":["Bash(ls:*)" ,  "Read"] },
   "//": "a comment, as JSON has them",
  "hooks":{
    "PostToolUse" : [],
    "Stop": [
      { "matcher":"", "hooks":[ {"type":"command","command":"echo \\u00e9 \\"done\\"  "} ] }
      ,
      {"hooks":[{"type": "command", "command":"notify"   }]}   ],
\t  "SessionStart":[{"matcher":"startup|resume","hooks":[{"type":"command","command":"x","timeout":5}]}],
    "Notification": [ {"hooks": [ ]} ]
  }   ,


      "model": "opus" , "env":{"A":"1","A":"2"}}   \n\n"""
SHAPES = {
    "full": FULL,
    "crlf": FULL.replace("\n", "\r\n"),
    "one line": '{"model":"opus","hooks":{"Stop":[{"hooks":[{"type":"command","command":"x"}]}]}}',
    "no hooks": '{\n  "model": "opus"\n}\n',
    "empty object": "{}",
    "empty object over lines": "{\n\n}\n",
    "empty hooks": '{\n    "hooks": { },\n    "a": 1\n}',
    "empty event": '{"hooks": {"Stop": [ ], "SessionEnd": []}}',
    "hooks twice": '{"hooks": {"Stop": 1}, "hooks": {}}',
    "tabs": '{\n\t"a": [\n\t\t1\n\t]\n}',
    "blanks": "  \n",
    "nothing": "",
}


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    (tmp_path / "profile").mkdir()
    return tmp_path / "profile"


def put(profile: Path, text: str) -> Path:
    place = profile / "settings.json"
    place.write_bytes(text.encode())
    return place


def install(profile: Path, program: str = PROGRAM) -> hooks.Edit:
    edit = hooks.install(profile, program)
    assert edit is not None
    hooks.make(edit)
    return edit


def uninstall(profile: Path) -> None:
    edit = hooks.remove(profile)
    assert edit is not None
    hooks.make(edit)


def read(place: Path) -> Any:
    return json.loads(place.read_bytes().decode().removeprefix("\ufeff"))


def handlers(settings: Any, event: str) -> list[Any]:
    return [hook for group in settings["hooks"][event] for hook in group["hooks"]]


@pytest.mark.parametrize("shape", SHAPES)
def test_what_setup_puts_in_undo_takes_out_to_the_byte(shape: str, profile: Path) -> None:
    place = put(profile, SHAPES[shape])
    install(profile)
    for event in EVENTS:
        wanted = {"type": "command", "command": hooks.command(PROGRAM), "timeout": WAIT_S}
        assert handlers(read(place), event)[-1] == wanted
    assert hooks.install(profile, PROGRAM) is None
    assert hooks.status(profile).missing == ()
    assert (b"\r\n" in place.read_bytes()) is (shape == "crlf")
    assert place.read_bytes().count(b"\n") == place.read_bytes().count(b"\r\n") or shape != "crlf"
    uninstall(profile)
    assert place.read_bytes() == SHAPES[shape].encode()
    assert hooks.remove(profile) is None
    assert os.listdir(profile) == ["settings.json"]


def test_a_file_that_was_made_for_the_hooks_goes_with_them(profile: Path) -> None:
    install(profile)
    assert (profile / "settings.json").stat().st_mode & 0o777 == 0o600
    uninstall(profile)
    assert os.listdir(profile) == []


@pytest.mark.parametrize("shape", ["full", "crlf", "one line", "no hooks", "tabs"])
def test_nothing_else_of_the_file_is_touched(shape: str, profile: Path) -> None:
    """What others wrote is there, in its order, to the byte: what is new can be cut out and leaves the old file."""
    place = put(profile, SHAPES[shape])
    install(profile)
    (profile / ("settings.json" + hooks.BACKUP)).unlink()
    uninstall(profile)
    assert place.read_bytes() == SHAPES[shape].encode()


def test_what_others_changed_since_stays(profile: Path) -> None:
    """Claude Code writes the file anew when a setting is changed."""
    place = put(profile, FULL)
    install(profile)
    changed = {**read(place), "model": "haiku"}
    place.write_text(json.dumps(changed, indent=2))
    edit = hooks.remove(profile)
    assert edit is not None and "others have changed it since" in edit.what
    hooks.make(edit)
    assert read(place) == {**json.loads(FULL.removeprefix("\ufeff")), "model": "haiku"}
    assert (profile / ("settings.json" + hooks.BACKUP)).read_bytes() == FULL.encode()


def test_a_hook_of_keepers_among_others_in_one_group_goes_alone(profile: Path) -> None:
    mine = {"type": "command", "command": hooks.command("/elsewhere/with blank/keeper")}
    theirs = {"type": "command", "command": "keeper hook"}
    place = put(profile, json.dumps({"hooks": {"Stop": [{"matcher": "", "hooks": [mine, theirs, mine]}]}}))
    uninstall(profile)
    assert read(place) == {"hooks": {"Stop": [{"matcher": "", "hooks": [theirs]}]}}


@pytest.mark.parametrize("shape", [*SHAPES, "none"])
def test_keeper_in_another_place_takes_its_old_hooks_over_and_out_to_the_byte(shape: str, profile: Path) -> None:
    place = profile / "settings.json"
    if shape != "none":
        put(profile, SHAPES[shape])
    install(profile, "/old/bin/keeper")
    install(profile)
    assert [one["command"] for one in handlers(read(place), "SessionEnd")][-1] == hooks.command(PROGRAM)
    assert "/old/bin" not in place.read_text()
    edit = hooks.remove(profile)
    assert edit is not None and "others" not in edit.what
    hooks.make(edit)
    assert os.listdir(profile) == ([] if shape == "none" else ["settings.json"])
    assert shape == "none" or place.read_bytes() == SHAPES[shape].encode()


BROKEN = {
    "a comment": '// mine\n{"model": "opus"}',
    "a comma too many": '{"model": "opus",}',
    "cut short": '{"model": "opus"',
    "more behind it": "{} {}",
    "no number": '{"a": NaN}',
    "a list": "[]",
    "hooks of another shape": '{"hooks": []}',
    "an event of another shape": '{"hooks": {"PostToolUse": {"hooks": []}}}',
    "too deep": "[" * 100_000,
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=list(BROKEN))
def test_a_file_that_claude_does_not_take_is_refused_and_not_touched(text: str, profile: Path) -> None:
    place = put(profile, text)
    for call in (lambda: hooks.install(profile, PROGRAM), lambda: hooks.remove(profile), lambda: hooks.status(profile)):
        with pytest.raises(Refused) as refused:
            call()
        assert str(place) in refused.value.message
        assert "Claude Code does not take it" in str(refused.value.cure)
    assert place.read_text() == text
    assert os.listdir(profile) == ["settings.json"]


def test_a_file_of_another_code_page_is_refused(profile: Path) -> None:
    (profile / "settings.json").write_bytes(b'{"model": "caf\xe9"}')
    with pytest.raises(Refused, match="no UTF-8"):
        hooks.install(profile, PROGRAM)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_regular_file_is_refused(make: Callable[[str], None], profile: Path) -> None:
    make(str(profile / "settings.json"))
    for call in (lambda: hooks.install(profile, PROGRAM), lambda: hooks.remove(profile), lambda: hooks.status(profile)):
        with pytest.raises(Refused, match="it is no regular file"):
            call()
    assert os.listdir(profile) == ["settings.json"]


def test_a_link_to_the_file_stays_a_link_and_mode_and_owner_stay(profile: Path, tmp_path: Path) -> None:
    dotfiles = tmp_path / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "claude.json").write_text(FULL)
    (dotfiles / "claude.json").chmod(0o640)
    (profile / "settings.json").symlink_to(dotfiles / "claude.json")
    install(profile)
    assert (profile / "settings.json").is_symlink()
    assert (dotfiles / "claude.json").stat().st_mode & 0o777 == 0o640
    assert hooks.status(profile).missing == ()
    uninstall(profile)
    assert (dotfiles / "claude.json").read_bytes() == FULL.encode()
    assert os.listdir(dotfiles) == ["claude.json"]


@pytest.mark.parametrize(
    ("place", "text", "key"),
    [
        ("managed-settings.json", '{"disableAllHooks": true}', "disableAllHooks"),
        ("managed-settings.json", '{"allowManagedHooksOnly": true}', "allowManagedHooksOnly"),
        ("managed-settings.d/10-hooks.json", '{"disableAllHooks": true}', "disableAllHooks"),
        ("managed-settings.json", '{"disableAllHooks": false}', ""),
        ("managed-settings.json", "no json", ""),
        ("elsewhere.json", '{"disableAllHooks": true}', ""),
    ],
)
def test_an_administrator_who_has_no_hook_called_is_named(
    place: str, text: str, key: str, profile: Path, tmp_path: Path
) -> None:
    """Measured on 2.1.328: by either key no hook of the user's settings is called."""
    put(profile, FULL)
    managed = tmp_path / "managed"
    (managed / place).parent.mkdir(parents=True)
    (managed / place).write_text(text)
    told = hooks.status(profile, (managed,)).disabled
    assert told == (f"`{key}` in {managed / place}" if key else "")


# --- at no instant half a file, and no change of another's lost ----------------------------------------


@pytest.mark.parametrize("text", [FULL, None], ids=["a file", "none"])
def test_failed_at_any_step_the_file_is_whole_old_or_whole_new(text: str | None, profile: Path) -> None:
    place = profile / "settings.json"

    def anew() -> hooks.Edit:
        for name in os.listdir(profile):
            (profile / name).unlink()
        if text is not None:
            put(profile, text)
        edit = hooks.install(profile, PROGRAM)
        assert edit is not None
        return edit

    edit = anew()
    count = len(changes_of(lambda: hooks.make(edit)))
    assert count >= 3
    after = place.read_bytes()
    for number in range(count + 6):  # the syncs too
        edit = anew()
        try:
            with hooked(failing(number, errno.EIO)):
                hooks.make(edit)
        except DiskError:
            assert (place.read_bytes() if place.exists() else None) in (edit.before, after)
        else:
            assert place.read_bytes() == after


@pytest.mark.parametrize("call", ["exchange", "create"])
def test_a_change_that_comes_in_between_is_not_lost(call: str, profile: Path) -> None:
    place = put(profile, FULL)
    edit = hooks.install(profile, PROGRAM)
    assert edit is not None
    with (
        hooked(before(call, lambda: place.write_text('{"theirs": 1}'))),
        pytest.raises(Refused, match="changed by another"),
    ):
        hooks.make(edit)
    assert place.read_text() == '{"theirs": 1}'
    assert [name for name in os.listdir(profile) if name.startswith(".keeper")] == []


@pytest.mark.parametrize("text", [FULL, None], ids=["a file", "none"])
def test_what_was_changed_since_it_was_decided_is_left_and_backed_up_by_nobody(text: str | None, profile: Path) -> None:
    place = profile / "settings.json"
    if text is not None:
        put(profile, text)
    edit = hooks.install(profile, PROGRAM)
    assert edit is not None
    put(profile, '{"theirs": 1}')
    with pytest.raises(Refused, match="changed by another"):
        hooks.make(edit)
    place.unlink()
    if text is None:
        install(profile)
        away = hooks.remove(profile)
        assert away is not None
        put(profile, '{"theirs": 1}')
        with pytest.raises(Refused, match="changed by another"):
            hooks.make(away)
        assert place.read_text() == '{"theirs": 1}'
        place.unlink()
    assert os.listdir(profile) == []


def test_a_file_that_another_makes_in_between_stays(profile: Path) -> None:
    edit = hooks.install(profile, PROGRAM)
    assert edit is not None
    with hooked(before("move", lambda: put(profile, "{}"))), pytest.raises(Refused, match="changed by another"):
        hooks.make(edit)
    assert (profile / "settings.json").read_text() == "{}"
    assert os.listdir(profile) == ["settings.json"]


def test_a_volume_without_exchange_gets_the_file_by_a_rename(profile: Path) -> None:
    place = put(profile, FULL)
    with hooked(refusing("exchange", errno.EINVAL)):
        install(profile)
    assert hooks.status(profile).missing == ()
    assert place.stat().st_size > len(FULL)


# --- the command ---------------------------------------------------------------------------------------


@pytest.mark.accepts("RESTORE-13")
@pytest.mark.parametrize("program", ["/gone/keeper", '/gone/it\'s a "keeper"', "/etc/passwd"])
def test_the_command_ends_with_0_and_says_nothing_when_keeper_is_gone(program: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", hooks.command(program)], env={"PATH": "/usr/bin:/bin"}, input=b"{}", capture_output=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.accepts("RESTORE-13")
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_command_calls_keeper_where_it_stood_else_the_one_on_path(shell: str, tmp_path: Path) -> None:
    def keeper(folder: str) -> Path:
        program = tmp_path / folder / "keeper"
        program.parent.mkdir()
        log = shlex.quote(str(tmp_path / f"{folder}.log"))
        program.write_text(f'#!/bin/sh\necho "$1" >> {log}; exit 7\n')
        program.chmod(0o755)
        return program

    first, second = keeper("it's here"), keeper("second")
    environ = {"PATH": f"{second.parent}:/usr/bin:/bin"}
    for _ in range(2):
        done = subprocess.run([shell, "-c", hooks.command(str(first))], env=environ, capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        first.unlink(missing_ok=True)
    assert (tmp_path / "it's here.log").read_text() == (tmp_path / "second.log").read_text() == "hook\n"


@pytest.mark.accepts("RESTORE-13")
@pytest.mark.parametrize(
    "said", [hooks.command("/gone/keeper"), hooks.CALL.format("keeper")], ids=["settings", "plugin"]
)
def test_no_word_of_another_program_of_that_name_reaches_claude(said: str, tmp_path: Path) -> None:
    other = tmp_path / "keeper"
    other.write_text("#!/bin/sh\necho who is there; echo who >&2; touch called\n")
    other.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", said], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, cwd=tmp_path, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (tmp_path / "called").exists()


@pytest.mark.accepts("RESTORE-13", "KEEP-2")
def test_the_python_of_a_project_is_not_keepers(tmp_path: Path) -> None:
    """A package of keeper's name, or another Python's libraries, on the PYTHONPATH that Claude was started with."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "json.py").write_text("raise ImportError('built for another Python')\n")
    program = tmp_path / "keeper"
    program.write_text(f"#!{sys.executable}\nimport json, sys\nopen('loaded', 'w').write(json.__file__)\n")
    program.chmod(0o755)
    project = str(tmp_path / "project")
    for said in (hooks.command(str(program)), hooks.CALL.format("keeper")):
        environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": project, "PYTHONHOME": project}
        subprocess.run(["sh", "-c", said], env=environ, cwd=tmp_path, check=True)
        assert (tmp_path / "loaded").read_text() == json.__file__
        (tmp_path / "loaded").unlink()


OLDER = """k=/old/keeper; [ -x "$k" ] || k=keeper; "$k" hook 2>/dev/null || exit 0"""


@pytest.mark.parametrize("shape", [*SHAPES, "none"])
def test_the_hooks_of_an_older_keeper_are_taken_over_and_taken_out_to_the_byte(shape: str, profile: Path) -> None:
    old = None if shape == "none" else SHAPES[shape].encode()
    place = put(profile, hooks._with_hooks(old, "f", OLDER).decode())
    if old is not None:
        (profile / ("settings.json" + hooks.BACKUP)).write_bytes(old)
    assert hooks.status(profile).missing == ()
    install(profile)
    for event in EVENTS:
        commands = [one["command"] for one in handlers(read(place), event)]
        assert (commands.count(hooks.command(PROGRAM)), OLDER in commands) == (1, False)
    assert hooks.install(profile, PROGRAM) is None
    uninstall(profile)
    assert (place.read_bytes() if place.exists() else None) == old
    assert os.listdir(profile) == ([] if old is None else ["settings.json"])


# --- for any text --------------------------------------------------------------------------------------

blanks = st.text(" \t\n\r", max_size=3)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5))
group = st.fixed_dictionaries({"hooks": st.lists(st.fixed_dictionaries({"command": st.text(max_size=4)}), max_size=2)})
events = st.dictionaries(st.sampled_from([*EVENTS, "PostToolUse"]), st.lists(group, max_size=2), max_size=4)
values = st.recursive(
    scalars, lambda kids: st.lists(kids, max_size=3) | st.dictionaries(st.text(max_size=3), kids, max_size=3)
)
settings = st.builds(
    lambda rest, own: {**rest, **({"hooks": own} if own is not None else {})},
    st.dictionaries(st.text(max_size=4).filter(lambda key: key != "hooks"), values, max_size=3),
    st.none() | events,
)


@st.composite
def spaced(draw: Callable[[Any], Any]) -> str:
    """Settings in any spacing."""

    def text(value: Any) -> str:
        if isinstance(value, dict):
            inner = ",".join(
                f"{draw(blanks)}{json.dumps(key)}{draw(blanks)}:{draw(blanks)}{text(one)}{draw(blanks)}"
                for key, one in value.items()
            )
            return "{" + (inner or draw(blanks)) + "}"
        if isinstance(value, list):
            return "[" + (",".join(f"{draw(blanks)}{text(one)}{draw(blanks)}" for one in value) or draw(blanks)) + "]"
        return json.dumps(value, ensure_ascii=draw(st.booleans()))

    return str(draw(blanks) + text(draw(settings)) + draw(blanks))


@given(spaced())
def test_in_any_spacing_the_hooks_come_and_go(text: str) -> None:
    """Without a backup lists that had been empty may go too; all else stays, and what is not empty to the byte."""
    told = json.loads(text)
    assert json_text.parse(text).value == told
    data = hooks._with_hooks(text.encode(), "f", hooks.command(PROGRAM))
    new = json.loads(data)
    for event in EVENTS:
        assert handlers(new, event)[-1]["command"] == hooks.command(PROGRAM)
    assert hooks._with_hooks(data, "f", hooks.command(PROGRAM)) == data
    back = hooks._without_hooks(data, "f")
    if told.get("hooks") and all(told["hooks"].get(event, [1]) for event in EVENTS):
        assert back == text.encode()
    left = json.loads(back)
    kept = {event: groups for event, groups in told.get("hooks", {}).items() if groups or event not in EVENTS}
    assert left.get("hooks", {}) == kept
    assert {**left, "hooks": 0} == {**told, "hooks": 0}
    assert list(left) == [key for key in told if key != "hooks" or kept]
    assert disk.hook is None
