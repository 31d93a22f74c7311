"""`eventplane completion SHELL`: a script that completes nouns, verbs and options."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Final

from operations.command import DONE, present
from operations.command_line import Parser, tree

SHELLS: Final = ("bash", "zsh", "fish")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Print the completion script of a shell: source <(eventplane completion bash), the same for zsh, or "
        "eventplane completion fish | source."
    )
    parser.set_defaults(run=_completion)
    parser.add_argument("shell", choices=SHELLS)


def _completion(options: argparse.Namespace) -> int:
    known = dict(words(tree()))
    script = _fish(known) if options.shell == "fish" else _bash(known)
    if options.shell == "zsh":
        script = f"autoload -U +X compinit bashcompinit && compinit && bashcompinit\n{script}"
    present(options, {"shell": options.shell, "script": script}, script)
    return DONE


def words(parser: Parser, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Return what can follow each `path` of nouns and verbs, and each option that takes one of few words."""
    parser.complete()
    found: list[str] = []
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to list them
        found += action.option_strings
        if isinstance(action.choices, Mapping):
            found += action.choices
            for name, inner in action.choices.items():
                yield from words(inner, (*path, name))
        elif action.choices is not None and not action.option_strings:
            found += map(str, action.choices)
        elif action.choices is not None:
            yield (*path, action.option_strings[-1]), [*map(str, action.choices)]
    yield path, found


def _bash(known: Mapping[tuple[str, ...], list[str]]) -> str:
    def cases(is_option: bool) -> str:
        return "\n".join(
            f'    "{" ".join(path)}") words="{" ".join(found)}" ;;'
            for path, found in known.items()
            if _ends_with_option(path) is is_option
        )

    nouns = "|".join(sorted({" ".join(path) for path in known if path and not _ends_with_option(path)}))
    return f"""_eventplane() {{
  local at path="" words="" word="${{COMP_WORDS[COMP_CWORD]}}"
  for ((at = 1; at < COMP_CWORD; at++)); do
    case "${{path:+$path }}${{COMP_WORDS[at]}}" in
    {_quoted(nouns)}) path="${{path:+$path }}${{COMP_WORDS[at]}}" ;;
    esac
  done
  case "$path" in
{cases(False)}
  esac
  case "${{path:+$path }}${{COMP_WORDS[COMP_CWORD - 1]}}" in
{cases(True)}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _eventplane eventplane"""


def _ends_with_option(path: tuple[str, ...]) -> bool:
    return bool(path) and path[-1].startswith("-")


def _quoted(alternatives: str) -> str:
    return "|".join(f'"{each}"' for each in alternatives.split("|"))


def _fish(known: Mapping[tuple[str, ...], list[str]]) -> str:
    lines = ["complete -c eventplane -e"]
    inner = {path[0]: found for path, found in known.items() if len(path) == 1}
    for path, found in known.items():
        if _ends_with_option(path):
            seen = "; and ".join(f"__fish_seen_subcommand_from {each}" for each in path[:-1])
            lines.append(f"complete -c eventplane -n '{seen}' -l {path[-1][2:]} -x -a '{' '.join(found)}'")
            continue
        condition = "__fish_use_subcommand" if not path else f"__fish_seen_subcommand_from {path[0]}"
        if len(path) == 2:
            condition += f"; and __fish_seen_subcommand_from {path[1]}"
        elif path and (verbs := [each for each in inner[path[0]] if not each.startswith("-")]):
            condition += f"; and not __fish_seen_subcommand_from {' '.join(verbs)}"
        for word in found:
            option = (
                f"-l {word[2:]}"
                if word.startswith("--")
                else f"-o {word[1:]}"
                if word[0] == "-"
                else f"-a {word}"
            )
            lines.append(f"complete -c eventplane -n '{condition}' {option}")
    return "\n".join(lines)
