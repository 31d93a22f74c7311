"""Write the tables of the docs that repeat what code, tests and measurements say. `--check` only compares.

A short table is between `<!-- table: NAME -->` and `<!-- end -->` in README.md or a page of the site. A long
one is docs/tables/NAME.csv, which the site shows in the place of a line that links it. What no code declares
is in lab/tools/reference, by page. The device's file of settings and the plots of figures are written whole.
"""

import ast
import csv
import dataclasses
import io
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from edge.metrics import METRICS  # noqa: E402
from edge.settings import Settings  # noqa: E402
from eventplane import function_settings  # noqa: E402
from eventplane.account import ENDED_AS_DECLARED, ENDED_OTHERWISE, Fate  # noqa: E402
from eventplane.archive_layout import FOLDERS, Folder  # noqa: E402
from eventplane.attributes import RULES  # noqa: E402
from eventplane.contract import ParticipantKind  # noqa: E402
from eventplane.contract.channels import RECEIPTS, SETTINGS, TRANSPORTS, WEBHOOK_SETTINGS  # noqa: E402
from eventplane.contract.reader import Number, Word  # noqa: E402
from eventplane.reasons import Reason  # noqa: E402
from eventplane.settings import Settings as FunctionSettings  # noqa: E402
from eventplane.settings import variable_of as function_variable_of  # noqa: E402
from eventplane_aws.rules import RULES as AWS_RULES  # noqa: E402
from eventplane_client import ClientSettings  # noqa: E402
from glue_jobs.delivery_audit.findings import weight_of  # noqa: E402
from lab.benchmarks.scale.model import published  # noqa: E402 - after the path it needs
from lab.benchmarks.scale.tables import TABLES as SCALE_TABLES  # noqa: E402
from lab.tools import docs_site, figures, sources  # noqa: E402
from lab.tools.figures import table  # noqa: E402
from lab.tools.settings_file import (  # noqa: E402
    documented,
    meanings,
    schema_of,
    settings_file,
    settings_rows,
    settings_schema,
)
from operations.reason_texts import explained  # noqa: E402
from parts import PARTS, has, load  # noqa: E402
from stacks.alarm_texts import alarm_texts  # noqa: E402
from stacks.environment import Environment  # noqa: E402
from stacks.quotas import QUOTAS  # noqa: E402
from tests.lost_answers.sites import call_sites, meets  # noqa: E402
from tests.spark.damage.kinds import MEANINGS  # noqa: E402

_TABLE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


ATTRIBUTES = ROOT / "lab" / "tools" / "attributes.toml"
SETTINGS_FILE = ROOT / "edge" / "packaging" / "forwarder.toml"
ENVIRONMENTS = ROOT / "stacks" / "environments.toml"
SINCE = tomllib.loads((ROOT / "lab" / "tools" / "since.toml").read_text())
OLDEST = "0.2.0"


_SETTING_HEAD = ["setting", "default", "accepts", "meaning"]


def settings_table(name: str, kind: type, given: Mapping[str, Any]) -> str:
    """The settings of a dataclass: name, default, which may be `given`, what it accepts, what it means, since
    which version, by `name` in `SINCE`."""
    since = {f"`{each}`": version for version, those in SINCE[name].items() for each in those}
    rows = [[*row, since.get(row[0], OLDEST)] for row in settings_rows(kind, given)]
    return table([*_SETTING_HEAD, "since"], rows)


def function_settings_table() -> str:
    """The environment variables of the functions: type, the functions that read each, meaning."""
    readers: dict[tuple[str, str, str], list[str]] = {}
    declared = [function_settings, *(load(each, "settings") for each in PARTS if has(each, "settings"))]
    kinds = (kind for module in declared for kind in vars(module).values() if isinstance(kind, type))
    for kind in dict.fromkeys(kinds):
        if issubclass(kind, FunctionSettings) and kind is not FunctionSettings:
            for each in dataclasses.fields(kind):
                # A field that is itself a group of settings has the variables of that group.
                if "Settings" not in str(each.type) and each.type != "SinkReach":
                    key = function_variable_of(each.name), str(each.type), meanings(kind)[each.name]
                    readers.setdefault(key, []).append(kind.__name__.removesuffix("Settings"))
    rows = [
        [f"`{name}`", f"`{type}`", meaning, ", ".join(who)] for (name, type, meaning), who in readers.items()
    ]
    return table(["variable", "type", "meaning", "settings of"], sorted(rows))


def parts_table() -> str:
    """The parts: what a plane lacks without each, what cannot do without it, and what leaves it out."""
    rows = []
    for name, part in PARTS.items():
        needed = [f"`{each}`" for each in part.needed_by]
        needed += [f"an inbox with `{part.inbox_key}`"] if part.inbox_key else []
        readme = f"parts/{name}/README.md"
        title = f"[`{name}`](../../{readme})" if (ROOT / readme).exists() else f"`{name}`"
        # What no participant needs, and no image, has a setting of the environment, of its name, or an extra.
        where = "the device's image" if has(name, "device") else "the contract" if needed else f"`{name}`"
        where = f"the extra {where}" if has(name, "command") and not part.noun else where
        rows.append([title, part.without, ", ".join(needed), "`parts`" if part.is_optional else where])
    return table(["part", "without it", "needed by", "left out by"], rows)


def rooms_table() -> str:
    """The folders with a README, by its first sentence."""
    rows = []
    for readme in sorted(ROOT.glob("[!.]*/README.md")):
        room, first = readme.parent.name, readme.read_text().split("\n\n")[1]
        if room != "node_modules":
            rows.append([f"[`{room}/`](../{room}/README.md)", " ".join(first.split()).partition(". ")[0]])
    return table(["folder", "content"], rows)


def attributes_table() -> str:
    """The attributes of events that mean something: type, rule, who sets each, meaning."""
    rows = []
    for name, (set_by, meaning) in tomllib.loads(ATTRIBUTES.read_text()).items():
        is_checked_later = name.startswith(("to", "state", "down"))
        type, refused = "", "see [downlink.md](../explanation/downlink.md)" if is_checked_later else ""
        if name in RULES:
            needed, _, refused = RULES[name]
            type = _TYPES[needed]
        rows.append([f"`{name}`", type, refused.removeprefix("it "), set_by, meaning])
    return table(["attribute", "type", "refused where", "set by", "meaning"], rows)


_TYPES = {str: "String", int: "Integer", bool: "Boolean"}


def limits_table() -> str:
    """Every bound of the core and of parts that is declared by name: value, reason and file."""
    rows = []
    files = [each for package in ("eventplane", "parts") for each in (ROOT / package).rglob("*.py")]
    # Those of every event come first.
    for file in sorted(files, key=lambda file: (file.name != "limits.py", str(file))):
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        rows += [
            [f"`{limit}`", f"{getattr(import_module(name), limit):,}", text, f"`{name}`"]
            for limit, text in documented(ast.parse(file.read_text()).body).items()
            if limit.startswith(("MAX_", "MIN_", "LEAST_"))
        ]
    return table(["limit", "value", "what and why", "declared in"], rows)


def channel_table() -> str:
    """The settings of an inbox or outbox in a contract."""
    rows = []
    for kind, transports in TRANSPORTS.items():
        accepts = " or ".join(f"`{each}`" for each in transports)
        if kind is ParticipantKind.CLOUD_SERVICE:
            accepts += ", or [a protocol that a package adds](../how-to/protocols.md)"
        rows.append([f"`transport` of a {kind}", f"`{transports[0]}`", accepts, "what carries the channel"])
    rows += [_setting_row(name, each) for name, each in SETTINGS.items()]
    default = "`false`; of a device service's urgent outbox `true`"
    rows.append(["`receipts`", default, "`true` or `false`", RECEIPTS.meaning])
    return table(_SETTING_HEAD, rows)


def webhook_table() -> str:
    """The settings of a webhook in a contract."""
    return table(_SETTING_HEAD, [_setting_row(name, each) for name, each in WEBHOOK_SETTINGS.items()])


def _setting_row(name: str, setting: Word | Number) -> list[str]:
    if isinstance(setting, Word):
        accepts = " or ".join(f"`{each}`" for each in setting.options)
        return [f"`{name}`", f"`{setting.default}`", accepts, setting.meaning]
    default = setting.unset if setting.default is None else f"{setting.default:,}"
    accepts = f"{setting.unit} from {setting.low:,} to {setting.high:,}"
    return [f"`{name}`", default, accepts, setting.meaning]


def metrics_table() -> str:
    """Return the metrics of a device, and the key of those that its heartbeat carries."""
    rows = []
    for each in METRICS:
        keys = ", ".join(f"`{key.name}`" for key in each.heartbeat)
        rows.append([f"`{each.name}`", each.kind, each.help, keys])
    return table(["metric", "kind", "meaning", "in the heartbeat"], rows)


def reasons_table() -> str:
    """Why something is a dead letter, and what to do about it."""
    texts = {f"`{each}`": explained(each) for each in Reason} | {"another": explained("another")}
    rows = [[word, _linked(means), remedy] for word, (means, remedy) in texts.items()]
    return table(["reason", "what it means", "what to do"], rows)


def fates_table() -> str:
    """Return the fates of an event, and the exit status of `trace` then."""
    known = {**dict.fromkeys(ENDED_AS_DECLARED, "0"), **dict.fromkeys(ENDED_OTHERWISE, "1")}
    rows = [[f"`{each}`", each.means, known.get(each, "3")] for each in Fate]
    return table(["word", "what it means", "exit status of `trace`"], rows)


def _linked(text: str) -> str:
    """Return `text` with a link for each name of another page of the reference."""
    return re.sub(r"docs/reference/([a-z-]+\.md)", r"[\1](\1)", text)


def scale_table(name: str) -> str:
    """One of what a fleet means, by the published figures."""
    return table(*SCALE_TABLES[name](_published()))


def figures_table(name: str) -> str:
    """Return the measurements: chosen figures, missed aims, the source paper's test, the README's results."""
    return figures.TABLES[name](_results())


def archive_folders_table() -> str:
    """The folders of the archive: what a row is, how it lies there, who wrote it."""
    return table(
        ["folder", "version", "one row is", "form", "written by"],
        [[f"`{_place(each)}`", f"{each.version}", each.row, each.form, each.written_by] for each in FOLDERS],
    )


def _place(folder: Folder) -> str:
    return "/".join([folder.name, *(f"{each}=" for each in folder.partitions)]) + "/"


def archive_columns_table() -> str:
    """The columns of the archive's tables, the compacted ones' included, and the tables that have them.

    Attributes of events that only a compacted table has share a row.
    """
    tables: dict[str, list[str]] = {}
    about: dict[str, list[str]] = {}
    for folder in FOLDERS:
        own = {each.name for each in folder.columns}
        extracted = folder.compaction.attributes if folder.compaction else ()
        attributes = [each for each in extracted if each not in own]
        for column in folder.compacted_columns or folder.columns:
            name, meaning = column.name, column.meaning
            if name in attributes:
                name, meaning = "`, `".join(attributes), "the event's attributes, as canonical text"
            holder = folder.name if column.name in own else f"{folder.name} (compacted)"
            if holder not in tables.setdefault(name, []):
                tables[name].append(holder)
            about[name] = [column.type, meaning]
    rows = [[f"`{name}`", *about[name], ", ".join(tables[name])] for name in tables]
    return table(["column", "type", "meaning", "tables"], rows)


def sources_table(source: str) -> str:
    """Return the requirements of one source document, with the tests that show them."""
    return table(["row", "asks for", "shown by"], sources.rows(source, _shown()))


_published = cache(published)
_results = cache(figures.kept)
_shown = cache(sources.shown)


def damage_table() -> str:
    """Return the damages of finished archives by hand, by kind."""
    names: dict[str, list[str]] = {}
    for name, meaning in MEANINGS.items():
        names.setdefault(meaning, []).append(f"`{name}`")
    return table(["kind", "damage"], [[", ".join(kinds), meaning] for meaning, kinds in names.items()])


def aws_calls_table() -> str:
    """The operations of AWS: what the repeat of a call that was done meets, and who calls them."""
    callers: dict[str, dict[str, set[str]]] = {}
    for each in call_sites():
        callers.setdefault(each.operation, {}).setdefault(each.file, set()).add(f"`{each.function}`")
    rows = [
        [
            f"`{operation}`",
            meets(operation),
            "<br>".join(f"`{file}`: {', '.join(sorted(files[file]))}" for file in sorted(files)),
        ]
        for operation, files in sorted(callers.items())
    ]
    return table(["operation", "a repeat meets", "called by"], rows)


def aws_rules_table() -> str:
    """AWS's rules and quotas, by its answer and by who enforces them here."""
    rules: dict[tuple[str, str], list[str]] = {}
    for each in AWS_RULES:
        answer = each.answer or f"the deployment fails; {each.remedy}"
        basis = f" ({each.basis})" if each.basis else ""
        rule = f"{each.name}: [{each.most:,} {each.unit}]({each.source}){basis}"
        rules.setdefault((answer, each.enforced), []).append(rule)
    for quota in QUOTAS.values():
        most = ", ".join(f"{most:,} in {region}" for region, most in quota.default.items())
        key = "requests beyond it are refused", "preflight, for the fleet that an environment expects"
        rules.setdefault(key, []).append(f"{quota.name}: [{most}]({quota.source})")
    rows = [[answer, enforced, "<br>".join(found)] for (answer, enforced), found in rules.items()]
    return table(["AWS's answer beyond it", "enforced by", "of what: at most"], rows)


def permissions_table() -> str:
    """The IAM permissions that the commands need."""
    needed = tomllib.loads((ROOT / "operations" / "permissions.toml").read_text())["permission"]
    return table(["for", "permissions"], [[each["for"], each["needs"]] for each in needed])


def findings_table() -> str:
    """The kinds of findings of an audit: weight, and when each is reported."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for kind, when in tomllib.loads((ROOT / "glue_jobs/delivery_audit/findings.toml").read_text()).items():
        kinds.setdefault((weight_of(kind), when), []).append(f"`{kind}`")
    return table(
        ["finding", "weight", "when"],
        [[", ".join(names), f"`{weight}`", when] for (weight, when), names in kinds.items()],
    )


def alarms_table() -> str:
    """The alarms: topic, when each is raised, and what to do."""
    return table(["alarm", "topic", "raised while", "what to do"], map(list, alarm_texts()))


def security_table(part: str) -> str:
    """The controls of the security review, or its exceptions."""
    if part == "control":
        rows = [[each["name"], each["does"], each["where"]] for each in _review()[part]]
        return table(["control", "what the plane does", "where"], rows)
    rows = [[f"`{each['rule']}`", ", ".join(each["packs"]), each["why"]] for each in _review()[part]]
    return table(["rule", "of", "why it is broken"], rows)


@cache
def _review() -> dict[str, Any]:
    return tomllib.loads((ROOT / "stacks" / "security_review.toml").read_text())


def written_tables() -> dict[str, Callable[[], str]]:
    """Return the tables that no code declares, by name: those of lab/tools/reference/PAGE.toml."""
    files = sorted((ROOT / "lab" / "tools" / "reference").glob("*.toml"))
    written = {name: each for file in files for name, each in tomllib.loads(file.read_text()).items()}
    return {name: partial(table, each["head"], each["rows"]) for name, each in written.items()}


TABLES = {
    **written_tables(),
    "security-controls": partial(security_table, "control"),
    "security-exceptions": partial(security_table, "exception"),
    "alarms": alarms_table,
    "findings": findings_table,
    "permissions": permissions_table,
    "aws-rules": aws_rules_table,
    "aws-calls": aws_calls_table,
    "damage": damage_table,
    "archive-folders": archive_folders_table,
    "archive-columns": archive_columns_table,
    "metrics": metrics_table,
    "settings": partial(settings_table, "settings", Settings, {}),
    "client-settings": partial(settings_table, "client-settings", ClientSettings, {}),
    "environment": partial(
        settings_table, "environment", Environment, tomllib.loads(ENVIRONMENTS.read_text())["base"]
    ),
    "function-settings": function_settings_table,
    "parts": parts_table,
    "attributes": attributes_table,
    "rooms": rooms_table,
    "limits": limits_table,
    "channel": channel_table,
    "reasons": reasons_table,
    "fates": fates_table,
    "webhook": webhook_table,
    **{name: partial(scale_table, name) for name in SCALE_TABLES},
    **{f"figures-{each}": partial(figures_table, each) for each in figures.TABLES},
    **{f"sources-{each}": partial(sources_table, each) for each in sources.SOURCES},
}


SCHEMAS = {
    SETTINGS_FILE.with_suffix(".schema.json"): (
        "The settings of Event Plane's forwarder",
        schema_of(Settings),
    ),
    ENVIRONMENTS.with_suffix(".schema.json"): (
        "The environments of an event plane",
        {"additionalProperties": {"type": "object", **schema_of(Environment, "name")}},
    ),
    ROOT / "docs/reference/client.schema.json": (
        "The settings of Event Plane's client library",
        schema_of(ClientSettings),
    ),
}
"""File -> title and members of the JSON Schema for editors."""


def current(text: str) -> str:
    """The Markdown `text` with every table in it as the code has it now."""
    return _TABLE.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], text)


def as_csv(table: str) -> str:
    """Return a Markdown table as CSV."""
    head, _, *rows = (re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines())
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(
        [cell.strip().replace(r"\|", "|") for cell in row] for row in (head, *rows)
    )
    return file.getvalue()


def main() -> int:
    """Write the tables; return 1 if no test shows a row of the sources, or `--check` finds a stale table."""
    try:
        missing = sources.missing(_shown())
    except sources.MarkError as error:
        print(error)
        return 1
    for row in missing:
        print(f'row {row} has no test; mark one that shows it with @pytest.mark.source("{row}")')
    parts = (ROOT / each for each in docs_site.PART_PAGES)
    pages = [ROOT / "README.md", *parts, *sorted((ROOT / "docs").rglob("*.md"))]
    wanted = {file: current(file.read_text()) for file in pages}
    long = {name for text in wanted.values() for name in docs_site.tables_of(text)}
    wanted |= {ROOT / "docs/tables" / f"{name}.csv": as_csv(TABLES[name]()) for name in long}
    wanted |= {ROOT / "docs/figures" / f"{name}.svg": svg for name, svg in figures.plots(_results()).items()}
    wanted[SETTINGS_FILE] = settings_file()
    wanted |= {file: settings_schema(title, **of) for file, (title, of) in SCHEMAS.items()}
    stale = [file for file, text in wanted.items() if not file.exists() or file.read_text() != text]
    if "--check" in sys.argv[1:]:
        for file in stale:
            print(f"{file.relative_to(ROOT)}: it is out of date; run `make tables`")
        return 1 if stale or missing else 0
    for file in stale:
        file.write_text(wanted[file])
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
