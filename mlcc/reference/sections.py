"""Sections of the Markdown files of the reference: a heading, sentences, facts, and an example in two languages.

    ## nn.relu

    max(x, 0), element by element.

    - dtypes: numbers
    - PyTorch: `torch.nn.functional.relu`

    ```mlc
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        return R.nn.relu(x)
    ```

    ```python
    np.maximum(x, 0)
    ```

The `python` block computes the same with NumPy or PyTorch: its last line is an expression whose value the example must
have. Arguments of `main` that it does not assign before are drawn at random. A test runs every example.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
_EXPANDED_IN = {"linear": "linalg", "nn.relu6": "unary"}  # calls of several operators
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FACT = re.compile(r"^- ([^:\n]+): (.*(?:\n  .*)*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Section:
    """The section of one name. `facts` are the lines `- what: text`, in their order."""

    name: str
    meaning: str
    facts: tuple[tuple[str, str], ...]
    example: str
    judge: str
    source: Path

    def stated(self, what: str) -> str:
        """The text of a fact, or an empty string."""
        return dict(self.facts).get(what, "")


@functools.cache
def sections(path: Path) -> dict[str, Section]:
    """The sections of a file by name. Raises ValueError for a name that occurs twice."""
    found: dict[str, Section] = {}
    for part in re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        name, _, body = part.partition("\n")
        if name.strip() in found:
            raise ValueError(f"{path}: two sections `{name.strip()}`")
        found[name.strip()] = _section(name.strip(), body, path)
    return found


def heading(path: Path) -> tuple[str, str]:
    """The title of a file, and what stands between it and the first section."""
    title, _, intro = path.read_text(encoding="utf-8").partition("\n## ")[0].partition("\n")
    return title.removeprefix("# ").strip(), intro.strip()


def _section(name: str, body: str, path: Path) -> Section:
    code = dict(_FENCE.findall(body))
    prose = _FENCE.sub("", body)
    facts = tuple((what, " ".join(text.split())) for what, text in _FACT.findall(prose))
    meaning = _FACT.sub("", prose).strip()
    return Section(name, meaning, facts, code.get("mlc", ""), code.get("python", ""), path)


def operator_section(short: str) -> Section | None:
    """The section of an operator, by its name without prefix."""
    from mlcc.ops.family_index import FAMILY_OF

    family = FAMILY_OF.get(short) or _EXPANDED_IN.get(short)
    path = FOLDER / "operators" / f"{family}.md"
    return sections(path).get(short) if family is not None and path.exists() else None


def intrinsic_section(name: str) -> Section | None:
    """The section of a TensorIR intrinsic, by its name without prefix."""
    path = FOLDER / "intrinsics.md"
    return sections(path).get(name) if path.exists() else None
