"""What a program imports, found in its sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.import_closure import Closure, closure


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    sources = {
        "app/__init__.py": "",
        "app/main.py": "from app import near\nfrom .sub import deep\nimport json.decoder, nowhere\n",
        "app/near.py": "def later():\n    import app.lazy\n    from urllib.parse import quote\n",
        "app/lazy.py": "from . import sub\n",
        "app/unused.py": "import sqlite3\n",
        "app/sub/__init__.py": "from .deep import value\n",
        "app/sub/deep.py": "from ..other import thing\nvalue = 1\n",
        "app/other.py": "import other_root\nthing = 1\n",
    }
    for name, text in sources.items():
        (tmp_path / "one" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "one" / name).write_text(text)
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "other_root.py").write_text("import zlib\n")
    return [tmp_path / "one", tmp_path / "two"]


@pytest.fixture
def found(roots: list[Path]) -> Closure:
    return closure(roots, "app.main")


def test_it_follows_every_kind_of_import_through_all_roots(found: Closure) -> None:
    assert list(found.files) == [
        "app", "app.lazy", "app.main", "app.near", "app.other", "app.sub", "app.sub.deep", "other_root",
    ]  # fmt: skip


def test_it_names_the_modules_of_the_standard_library(found: Closure) -> None:
    assert found.standard == {"json.decoder", "urllib.parse", "zlib"}


def test_what_is_left_out_takes_with_it_what_only_it_imports(roots: list[Path]) -> None:
    found = closure(roots, "app.main", without=["app.sub"])
    assert list(found.files) == ["app", "app.lazy", "app.main", "app.near"]
    assert found.standard == {"json.decoder", "urllib.parse"}
