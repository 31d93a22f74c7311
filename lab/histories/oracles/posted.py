"""Events for an endpoint get there or become dead letters, and pauses are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from eventplane.names import SUBSCRIBERS
from eventplane.sinks import GONE_S
from lab.histories.oracles.delivered import letters
from lab.histories.oracles.finding import OracleFinding
from parts.webhooks.delivery import ALONE_MS, KNOWN_MS
from parts.webhooks.endpoint_state import LONGEST_ASKED_S

if TYPE_CHECKING:
    from lab.histories.endpoints import Post
    from lab.histories.history import History

WRITES_S: Final = 0.5
"""How long a process takes to write what an answer showed, seconds, while the table is well."""

BAD_TABLE: Final = ("outage", "slow", "lose-answer", "refuse", "die")


def judged(history: History) -> Iterator[OracleFinding]:
    """Look at what endpoints were asked, and what was led there."""
    is_bad = any(
        each.what in BAD_TABLE and each.who in ("dynamodb", SUBSCRIBERS) for each in history.story.decisions
    )
    window_s = KNOWN_MS / 1_000 + WRITES_S + (ALONE_MS / 1_000 if is_bad else 0)
    endpoints = history.cloud.endpoints.values()
    # While the table is away, or takes nothing, a process knows what it has seen, and no other learns of it.
    away = [
        (each.at_s, each.at_s + each.much + ALONE_MS / 1_000)
        for each in history.story.decisions
        if (each.what, each.who) in (("outage", "dynamodb"), ("throttle", "put_item"))
    ]
    away += [
        (each.at_s - WRITES_S, each.at_s)
        for each in history.engine.notes
        if each.lane == SUBSCRIBERS and each.text.endswith("is refused")
    ]
    for endpoint in endpoints:
        known = [
            each
            for each in endpoint.posts
            if not any(a <= each.answered_s and each.at_s <= b for a, b in away)
        ]
        yield from paused(endpoint.url, known, window_s, is_bad=is_bad)
    taken = {(post.source, post.id) for each in endpoints for post in each.posts if 200 <= post.status < 300}
    deleted = {
        f"{who}-subscribes-{change.name}"
        for who, each in history.administrators.items()
        for change in each.changes
        if change.prefix is None
    }
    about = taken | letters(history)
    for each in history.ledger:
        is_led = each["destination"] == f"{SUBSCRIBERS}.inbox" and each["route"] not in deleted
        if is_led and (each["source"], each["id"]) not in about:
            yield OracleFinding("never at its endpoint", f"{each['source']} {each['id']} by {each['route']}")


def paused(url: str, posts: Sequence[Post], window_s: float, *, is_bad: bool) -> Iterator[OracleFinding]:
    """Look for `posts` in the pause that an answer asked for, later than `window_s` after it."""
    began_s: list[float] = []
    for at, answer in enumerate(posts):
        pause_s = GONE_S if answer.status == 410 else min(answer.retry_after_s, LONGEST_ASKED_S)
        if is_bad and any(each < answer.at_s < each + window_s for each in began_s):
            continue  # who asks although there is a pause has no table, and no other learns of its answer
        if pause_s:
            began_s.append(answer.answered_s)
        until_s = answer.answered_s + pause_s
        for each in posts[at + 1 :]:
            if answer.answered_s + window_s < each.at_s < until_s - 0.001:
                yield OracleFinding(
                    f"posted in the pause of a {answer.status}",
                    f"{url}: {each.id} {each.at_s - answer.answered_s:.3f} s after {pause_s:g} s",
                )
