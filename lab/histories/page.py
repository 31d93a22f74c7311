"""A history as one page: a lane for each party, time from left to right as it went, faults in red."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from lab.histories.oracles import OracleFinding
from lab.histories.story import Story
from parts.simulate.lanes import lanes
from parts.simulate.timeline import Note

_STYLE: Final = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5rem; color: #1b1b1b; background: #fff }
svg { width: 100%; height: auto } .lane { stroke: #d5d5d5 } .name { font-size: 12px }
.mark { fill: #2b5c8a } .fault { fill: #c0182b }
td, th { text-align: left; padding: .1rem .8rem .1rem 0; vertical-align: top }
tr.fault td { color: #a3101f } caption { text-align: left; font-weight: 600; padding: .6rem 0 }
"""


def page(story: Story, notes: Sequence[Note], findings: Sequence[OracleFinding]) -> str:
    """Return the page of a history as HTML."""
    rows = "".join(
        f"<tr{' class=fault' if each.is_fault else ''}><td>{each.at_s:.3f}</td><td>{escape(each.lane)}</td>"
        f"<td>{escape(each.text)}</td></tr>"
        for each in notes
    )
    said = "".join(
        f"<li><strong>{escape(each.kind)}</strong>: {escape(each.detail)}</li>" for each in findings
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>A history</title>'
        f"<style>{_STYLE}</style>"
        f"<h1>A history of {story.homes} home(s), {len(story.decisions)} decisions</h1>"
        f"<h2>What is wrong</h2><ul>{said or '<li>Nothing.</li>'}</ul>"
        f"{lanes(notes)}"
        "<table><caption>What happened</caption><tr><th>Second</th><th>Who</th><th>What</th></tr>"
        f"{rows}</table></html>\n"
    )
