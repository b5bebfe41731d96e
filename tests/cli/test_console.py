"""Nothing that comes from files or names acts on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.live import Live
from rich.table import Table
from rich.text import Text

import muster.cli.show
from muster.base.errors import UNSEEN, MusterError, MusterWarning, warning_line
from muster.cli.console import Terminal, print_line
from muster.cli.main import main

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202eend"


def printed(show, **how):
    console = Terminal(file=io.StringIO(), width=80, **how)
    show(console)
    return console.file.getvalue()


def table(console):
    made = Table(EVIL, title=EVIL)
    made.add_row(Text(EVIL))
    console.print(made)


@pytest.mark.parametrize("show", [
    lambda console: print_line(console, EVIL),
    table,
    lambda console: console.print(EVIL, markup=False),
])  # fmt: skip
def test_printed_text_has_no_control_codes(show):
    text = printed(show)
    assert "owned" in text
    assert not UNSEEN.search(text)


def test_colours_and_the_cursor_of_what_is_live_stay_rich_s_own():
    def live(console):
        with Live(Text(EVIL, style="bold red"), console=console, auto_refresh=False) as shown:
            shown.update(Text(EVIL), refresh=True)

    text = printed(live, force_terminal=True, color_system="standard")
    assert "\x1b[1;31m" in text
    for code in ("\x1b]", "\x1b[2J", "\x07", "\x9b", "\u202e", "\rend"):
        assert code not in text


def test_an_error_and_a_warning_are_one_clean_line(capsys, monkeypatch):
    def fail(arguments, console):
        raise MusterError(f"bad\n{EVIL}")

    monkeypatch.setattr(muster.cli.show, "execute", fail)
    assert main(["show", "x"]) == 2
    told = warning_line(MusterWarning(f"bad\n{EVIL}"), MusterWarning)
    assert capsys.readouterr().err == told
    assert told.startswith("muster: bad \ufffd]0;owned")
    assert told.index("\n") == len(told) - 1
    assert not UNSEEN.search(told)
