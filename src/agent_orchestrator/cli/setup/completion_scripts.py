"""The completion scripts for bash, zsh and fish, written from the table of commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_orchestrator.cli.setup.completion import CompletionPlace, CompletionWord

_WALK = r"""
_ao_walk() {  # the word to complete, and those before it: fills _ao_found and, with descriptions, _ao_about; or _ao_kind is files
  local cur=$1 word at='' kind='' plain='' args rest
  shift
  _ao_found=() _ao_about=() _ao_kind=''
  _ao_at ''
  for word in "$@"; do
    if [ -n "$kind" ]; then
      kind=''
      continue
    fi
    case "$plain$word" in
      --) plain=. ;;
      -*=*) ;;
      -*)
        case "$_ao_values" in
          *" $word="*) kind=${_ao_values#*" $word="} kind=${kind%% *} ;;
        esac
        ;;
      *)
        case " ${_ao_commands[*]} " in
          *" $word "*) at="$at $word"; _ao_at "$at" ;;
          *) _ao_args=${_ao_args#* } ;;
        esac
        ;;
    esac
  done
  if [ -z "$kind" ]; then
    case "$plain$cur" in
      -*) _ao_found=("${_ao_options[@]}") _ao_about=("${_ao_options_about[@]}"); return ;;
    esac
    if [ "${#_ao_commands[@]}" != 0 ]; then
      _ao_found=("${_ao_commands[@]}") _ao_about=("${_ao_commands_about[@]}")
    fi
    kind=${_ao_args%% *}
  fi
  _ao_propose "${kind:--}"
}

_ao_propose() {  # the names of one kind
  local name left file="${AO_HOME:-$HOME/.agent-orchestrator}/names/$1"
  case "$1" in
    -) ;;
    files) _ao_kind=files ;;
    branches)
      while IFS= read -r name; do _ao_found+=("$name"); done < <(git for-each-ref --format='%(refname:short)' refs/heads 2>/dev/null)
      ;;
    :*)
      left=${1#:},
      while [ -n "$left" ]; do
        _ao_found+=("${left%%,*}")
        left=${left#*,}
      done
      ;;
    *)
      if [ -r "$file" ]; then
        while IFS= read -r name; do _ao_found+=("$name"); done <"$file"
      fi
      ;;
  esac
}
"""

_BASH = r"""
_ao() {
  local word name cur=${COMP_WORDS[COMP_CWORD]} before=()
  local _ao_found _ao_about _ao_kind _ao_args _ao_values _ao_commands _ao_options _ao_commands_about _ao_options_about
  [ "$cur" = = ] && cur=''
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [ "$word" = = ] || before+=("$word")
  done
  COMPREPLY=()
  _ao_walk "$cur" "${before[@]}"
  for name in "${_ao_found[@]}"; do
    case "$name" in "$cur"*) printf -v name %q "$name"; COMPREPLY+=("$name") ;; esac  # bash takes it as it is, commands included
  done
  if [ "$_ao_kind" = files ]; then
    compopt -o filenames 2>/dev/null
    while IFS= read -r name; do COMPREPLY+=("$name"); done < <(compgen -f -- "$cur")
  fi
}
complete -F _ao ao agent-orchestrator
"""

_ZSH = r"""
_ao() {
  local cur=${words[CURRENT]} n
  local -a before shown _ao_found _ao_about _ao_commands _ao_options _ao_commands_about _ao_options_about
  local _ao_kind _ao_args _ao_values
  before=("${(@)words[2,CURRENT-1]}")
  if [[ $cur == --*=* ]]; then
    before+=("${cur%%=*}")
    cur=${cur#*=}
    compset -P '*='
  fi
  _ao_walk "$cur" "${before[@]}"
  if [[ $_ao_kind == files ]]; then
    _files
  elif (( $#_ao_about )); then
    for (( n = 1; n <= $#_ao_found; n++ )); do
      shown+=("${_ao_found[n]//:/\\:}:${_ao_about[n]}")
    done
    _describe ao shown
  elif (( $#_ao_found )); then
    compadd -a _ao_found
  fi
}
if [[ ${funcstack[1]} == _ao ]]; then
  _ao "$@"
else
  (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
  compdef _ao ao agent-orchestrator
fi
"""

_FISH = r"""
function __ao_propose --argument-names kind before
    set -l home $AO_HOME
    test -n "$home"; or set home $HOME/.agent-orchestrator
    switch $kind
        case -
        case files
            __fish_complete_path (commandline -ct)
        case branches
            for name in (git for-each-ref --format='%(refname:short)' refs/heads 2>/dev/null)
                echo "$before$name"
            end
        case ':*'
            for name in (string split , -- (string sub -s 2 -- $kind))
                echo "$before$name"
            end
        case '*'
            if test -r $home/names/$kind
                while read -l name
                    echo "$before$name"
                end <$home/names/$kind
            end
    end
end

function __ao
    set -l words (commandline -opc)
    set -l cur (commandline -ct)
    set -l at ''
    set -l kind ''
    set -l plain ''
    set -l taken 0
    __ao_at ''
    for word in $words[2..-1]
        if test -n "$kind"
            set kind ''
        else if test -z "$plain"; and test "$word" = --
            set plain .
        else if string match -q -- '-*' $plain$word
            set -l index (contains -i -- $word $__ao_values)
            and set kind $__ao_values[(math $index + 1)]
        else if contains -- $word $__ao_commands
            set at "$at $word"
            set taken 0
            __ao_at $at
        else
            set taken (math $taken + 1)
        end
    end
    if test -n "$kind"
        __ao_propose $kind
    else if string match -q -- '--*=*' $cur
        set -l option (string split -m 1 = -- $cur)[1]
        set -l index (contains -i -- $option $__ao_values)
        and __ao_propose $__ao_values[(math $index + 1)] "$option="
    else if string match -q -- '-*' $plain$cur
        printf '%s\n' $__ao_options
    else
        printf '%s\n' $__ao_about
        set -l next (math $taken + 1)
        if test $next -le (count $__ao_args)
            __ao_propose $__ao_args[$next]
        else
            __ao_propose $__ao_rest
        end
    end
    set -e __ao_commands __ao_about __ao_options __ao_values __ao_args __ao_rest
end
complete -c ao -f -a '(__ao)'
complete -c agent-orchestrator -f -a '(__ao)'
"""


def bash(places: Sequence[CompletionPlace]) -> str:
    """Return the script for bash, including bash 3.2 of macOS."""
    return _table(places, described=False) + _WALK + _BASH


def zsh(places: Sequence[CompletionPlace]) -> str:
    """Return the script for zsh, to be evaluated or stored in `$fpath`."""
    return _table(places, described=True) + _WALK + _ZSH


def fish(places: Sequence[CompletionPlace]) -> str:
    """Return the script for fish."""
    lines = ["function __ao_at --argument-names at"]
    lines += [f"    set -g __ao_{name}" for name in ("commands", "about", "options", "values", "args")]
    lines += ["    set -g __ao_rest -", "    switch $at"]
    for place in places:
        lines.append(f"        case {' '.join(_quote_for_fish(name) for name in place.names)}")
        values = [part for pair in place.values.items() for part in pair]
        lists = {
            "commands": [word.text for word in place.commands],
            "about": [f"{word.text}\t{word.about}" for word in place.commands],
            "options": [f"{word.text}\t{word.about}" for word in place.options],
            "values": values,
            "args": list(place.arguments),
            "rest": [place.rest] if place.rest else [],
        }
        lines += [
            f"            set __ao_{name} {' '.join(map(_quote_for_fish, all_))}"
            for name, all_ in lists.items()
            if all_
        ]
    return "\n".join([*lines, "    end", "end", _FISH])


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}


def _table(places: Sequence[CompletionPlace], *, described: bool) -> str:
    """`_ao_at`, which says what may follow a command."""
    lines = ["_ao_at() {"]
    lines.append(
        "  _ao_commands=() _ao_options=() _ao_commands_about=() _ao_options_about=() _ao_values='' _ao_args=''"
    )
    lines.append('  case "$1" in')
    for place in places:
        lines.append(f"    {'|'.join(map(_quote, place.names))})")
        lines += _words("commands", place.commands, described) + _words("options", place.options, described)
        if place.values:
            values = " ".join(f"{option}={kind}" for option, kind in place.values.items())
            lines.append(f"      _ao_values={_quote(f' {values} ')}")
        # Each argument takes its kind away; the last one, after which no space follows, stays.
        kinds = [*(f"{kind} " for kind in place.arguments), place.rest or "- "]
        if any(kind.strip() != "-" for kind in kinds):
            lines.append(f"      _ao_args={_quote(''.join(kinds))}")
        lines.append("      ;;")
    return "\n".join([*lines, "  esac", "}"]) + "\n"


def _words(name: str, words: Sequence[CompletionWord], described: bool) -> list[str]:
    lines = [f"      _ao_{name}=({' '.join(_quote(word.text) for word in words)})"] if words else []
    if words and described:
        lines.append(f"      _ao_{name}_about=({' '.join(_quote(word.about) for word in words)})")
    return lines


def _quote(text: str) -> str:
    plain = text.replace("-", "").isalnum() and text.isascii()
    return text if plain else "'" + text.replace("'", "'\\''") + "'"


def _quote_for_fish(text: str) -> str:
    plain = text.replace("-", "").isalnum() and text.isascii()
    return text if plain else "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
