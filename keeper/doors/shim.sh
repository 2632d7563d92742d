#!/bin/sh
# keeper-shim 1: stands in front of Claude Code's `claude`, and has keeper put back what is about to be resumed.
#
# It needs neither Python nor keeper to start Claude: whatever fails on the way is one line on stderr, and the real
# program takes this one's place (exec) with the same arguments, environment and terminal. `keeper shim remove` takes
# it away; so does deleting it. Names begin with _keeper_, since a shell hands on what it changes of its environment.

_keeper_python=@PYTHON@
_keeper_limit=10
_keeper_deep=12
# Its Python is called with -E: a PYTHONPATH is the project's, whose modules are not to go before keeper's. (-I would
# lose a keeper that stands in the user's own site-packages.)
_keeper_door='
import sys
try:
    from keeper.doors.before import main
except BaseException:
    sys.exit(12)
sys.exit(main(sys.argv[1:]))'

_keeper_say() {
  (printf 'keeper: %s\n' "$1" >&2 2>/dev/null) # one that nobody reads any more (SIGPIPE) ends the subshell alone
}

# Whether a file is a shim of keeper's: this one by any link, or a copy of it.
_keeper_is_shim() {
  _keeper_line=
  { IFS= read -r _keeper_line && [ "$_keeper_line" = '#!/bin/sh' ] && IFS= read -r _keeper_line; } 2>/dev/null <"$1"
  case $_keeper_line in '# keeper-shim '*) return 0 ;; esac
  return 1
}

_keeper_runs() {
  [ -f "$1" ] && [ -x "$1" ] && ! _keeper_is_shim "$1"
}

# What this shim has started before in this process, and what it has started in those that wait for this one. Another
# wrapper may start "the first claude which is not me", that is the shim: without a memory the two call one another for
# ever. An exec keeps the process, and so what came back in it has called us. A wrapper that forks looks as a `claude`
# does which Claude starts; it is told by its depth, of starts that all still live.
_keeper_recall() {
  _keeper_been=:
  _keeper_depth=1
  _keeper_again=
  _keeper_rest=${_KEEPER_BEEN:-}
  _keeper_pid=${_keeper_rest%%:*}
  _keeper_rest=${_keeper_rest#*:}
  _keeper_one=${_keeper_rest%%:*}
  case $_keeper_pid:$_keeper_one in *[!0-9:]* | :* | *: | *:0* | *:*:* | *:??????*) return ;; esac
  if [ "$_keeper_pid" = $$ ]; then
    _keeper_again=yes
    _keeper_depth=$_keeper_one
  elif kill -0 "$_keeper_pid" 2>/dev/null; then
    _keeper_depth=$((_keeper_one + 1))
  else
    return
  fi
  _keeper_been=:${_keeper_rest#*:}
  [ "$_keeper_depth" -le "$_keeper_deep" ] || _keeper_again=yes
}

# Whether it has called us.
_keeper_called() {
  [ -n "$_keeper_again" ] && case $_keeper_been in *":$1:"*) true ;; *) false ;; esac
}

# The next `claude` on PATH behind this one's folder; else one before it (two shims in a row must not call one another
# for ever); else where Claude Code's own installers put it.
_keeper_find() {
  _keeper_real=
  if [ -n "${KEEPER_CLAUDE:-}" ] && ! _keeper_called "$KEEPER_CLAUDE"; then
    if _keeper_runs "$KEEPER_CLAUDE"; then
      _keeper_real=$KEEPER_CLAUDE
      return
    fi
    _keeper_say "KEEPER_CLAUDE=$KEEPER_CLAUDE is no program, looking on PATH"
  fi
  _keeper_rest=${PATH:-}:
  _keeper_passed=
  while [ -n "$_keeper_rest" ]; do
    _keeper_one=${_keeper_rest%%:*}
    _keeper_rest=${_keeper_rest#*:}
    _keeper_one=${_keeper_one:-.}/claude
    if [ -f "$_keeper_one" ] && [ -x "$_keeper_one" ]; then
      if _keeper_is_shim "$_keeper_one"; then
        _keeper_passed=yes
      elif _keeper_called "$_keeper_one"; then
        :
      elif [ -n "$_keeper_passed" ]; then
        _keeper_real=$_keeper_one
        return
      else
        _keeper_real=${_keeper_real:-$_keeper_one}
      fi
    fi
  done
  for _keeper_one in "${HOME:-}/.local/bin/claude" "${HOME:-}/.claude/local/claude"; do
    [ -z "$_keeper_real" ] && _keeper_runs "$_keeper_one" && ! _keeper_called "$_keeper_one" && _keeper_real=$_keeper_one
  done
}

# What keeper does before Claude starts. Ctrl-C ends it, and Claude starts. What the door says on its stdout is for the
# person; what an interpreter that cannot start says on its stderr is no line for anybody.
_keeper_before() {
  _keeper_stopped=
  trap '_keeper_stopped=yes; kill "$_keeper_pid" 2>/dev/null' INT
  if true >&2; then
    "$@" >&2 2>/dev/null </dev/null &
  else
    "$@" >/dev/null 2>&1 </dev/null & # our stderr is closed
  fi
  _keeper_pid=$!
  wait "$_keeper_pid" 2>/dev/null # dash and bash tell there of a child that was killed
  _keeper_code=$?
  if [ -n "$_keeper_stopped" ]; then
    wait "$_keeper_pid" 2>/dev/null
    _keeper_say 'stopped, starting claude'
    _keeper_code=0
  fi
  trap - INT
}

_keeper_guard() {
  if ! { [ -f "$_keeper_python" ] && [ -x "$_keeper_python" ]; }; then
    _keeper_say "not there any more ($_keeper_python), starting claude without it (keeper shim install, or remove ${0%/*})"
    return
  fi
  _keeper_bound=
  command -v timeout >/dev/null 2>&1 && _keeper_bound="timeout -s KILL $_keeper_limit"
  # shellcheck disable=SC2086  # the bound is several words
  _keeper_before $_keeper_bound "$_keeper_python" -EP -c "$_keeper_door" before "$_keeper_real" "$@"
  case $_keeper_code in
    0 | 10 | 11) ;; # done; there is something to choose; it failed and has said so
    137) _keeper_say "not done within $_keeper_limit s, starting claude without it" ;;
    *) _keeper_say "failed ($_keeper_code), starting claude without it (\`keeper status\` says more)" ;;
  esac
}

# What dash and busybox do not hand on: entries whose names are none of a shell's (exported functions of bash,
# npm_config_//registry/:_authToken), as quoted words. A line feed in them stands as \001 while lines are made of them.
_keeper_odd() {
  {
    tr '\000\n' '\n\001' <"/proc/$$/environ" |
      LC_ALL=C sed -n "/^[A-Za-z_][A-Za-z0-9_]*=/d; /^[^=][^=]*=/!d; s/'/'\\\\''/g; s/.*/'&'/p" |
      tr '\n\001' ' \n'
  } 2>/dev/null
}

# Claude, in our place.
_keeper_start() {
  export _KEEPER_BEEN="$$:$_keeper_depth$_keeper_been$_keeper_real:"
  case $_keeper_real in
    *=*) ;; # env would take it for an entry
    *)
      _keeper_words=$(_keeper_odd)
      [ -z "$_keeper_words" ] || ! command -v env >/dev/null 2>&1 || eval "exec env -- $_keeper_words \"\$_keeper_real\" \"\$@\""
      ;;
  esac
  exec "$_keeper_real" "$@"
}

_keeper_recall
_keeper_find
if [ -z "$_keeper_real" ]; then
  _keeper_say 'no claude on PATH but this shim, or what calls it: install Claude Code, or name it in KEEPER_CLAUDE'
  exit 127
fi

case ${1:-} in
  # These start no conversation.
  -v | --version | -h | --help | auth | config | doctor | install | mcp | migrate-installer | plugin | plugins | purge | \
    setup-token | update | upgrade) _keeper_start "$@" ;;
esac

[ -n "$_keeper_again" ] || _keeper_guard "$@"

# Bare --resume on a terminal, and chats of this directory that Claude's own list has not: which one? The answer is the
# place of the flag and the session; without one Claude shows its own list.
if [ "${_keeper_code:-0}" -eq 10 ] && [ -t 0 ] && [ -t 2 ]; then
  trap : INT
  _keeper_choice=$("$_keeper_python" -EP -c "$_keeper_door" choose "$_keeper_real" "$@")
  trap - INT
  case $_keeper_choice in
    *' '*)
      _keeper_count=$#
      _keeper_turn=0
      while [ "$_keeper_turn" -lt "$_keeper_count" ]; do
        _keeper_one=$1
        shift
        set -- "$@" "$_keeper_one"
        [ "$_keeper_turn" -eq "${_keeper_choice%% *}" ] && set -- "$@" "${_keeper_choice#* }"
        _keeper_turn=$((_keeper_turn + 1))
      done
      _keeper_guard "$@"
      ;;
  esac
fi

_keeper_start "$@"
