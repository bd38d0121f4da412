"""One logical line laid out within a width: brackets are broken where the line is too long or has comments inside.

Only blanks and line ends are chosen here; tokens and comments stay as they are. The choice depends on nothing but the
tokens, the comments, and whether a comment stood on a line of its own, so laying out a layout changes nothing.
"""

from __future__ import annotations

import keyword
from dataclasses import dataclass, field

WIDTH = 120
STEP = 4
NEVER = 1 << 30  # the width of what cannot stand on one line
_MIN_BREAK = 24  # narrower brackets are not broken
_FILL_ITEM = 24  # lists of items up to this width are filled line by line

WORDS = frozenset(keyword.kwlist) - {"True", "False", "None"}
_OPERATORS = frozenset(
    {
        "+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "~", "<<", ">>", "==", "!=", "<", ">", "<=", ">=", "=",
        "+=", "-=", "*=", "/=", "//=", "%=", "**=", "&=", "|=", "^=", "<<=", ">>=", "->",
    }
)  # fmt: skip
_UNARY = frozenset({"+", "-", "~", "*", "**"})
_PRECEDENCE = {
    "if": 0, "else": 0, "or": 1, "and": 2,
    "==": 3, "!=": 3, "<": 3, ">": 3, "<=": 3, ">=": 3,
    "|": 4, "^": 5, "&": 6, "<<": 7, ">>": 7, "+": 8, "-": 8, "*": 9, "/": 9, "//": 9, "%": 9, "@": 9,
}  # fmt: skip


@dataclass(slots=True)
class Atom:
    """A token; `space` is whether a blank stands before it when both are on one line."""

    text: str
    space: bool = False
    unary: bool = False

    @property
    def width(self) -> int:
        return NEVER if "\n" in self.text else len(self.text) + self.space


@dataclass(slots=True)
class Comment:
    """A comment inside a line: on a separate line, or behind the preceding part."""

    text: str
    own_line: bool
    space: bool = False
    width: int = NEVER


@dataclass(slots=True)
class Group:
    """A pair of brackets with the items between their commas."""

    open: Atom
    close: str = ""
    items: list[list[Part]] = field(default_factory=lambda: [[]])
    width: int = 0

    @property
    def space(self) -> bool:
        return self.open.space

    @property
    def trailing_comma(self) -> bool:
        return len(self.items) > 1 and not self.items[-1]


Part = Atom | Comment | Group


# ---------------------------------------------------------------- blanks between tokens


def space_tokens(texts: list[str]) -> list[Atom]:
    """Tokens of one logical line with the blanks between them."""
    spaced: list[Atom] = []
    spacer = _Spacer(bool(texts) and texts[0] == "def")
    before: Atom | None = None
    for text in texts:
        atom = Atom(text)
        atom.unary = (text in _UNARY and spacer.starts_operand(before)) or (text == "@" and before is None)
        atom.space = before is not None and spacer.blank(before, atom)
        spacer.step(atom, before)
        spaced.append(atom)
        before = atom
    return spaced


class _Spacer:
    """The state of spacing within a line: open brackets, and the number of lambdas whose colon is still to come."""

    def __init__(self, is_def: bool) -> None:
        self._open: list[str] = [""]
        self._lambdas = [0]
        self._params = is_def  # the next bracket, or the one open, holds parameters
        self._annotated = False
        self._tight_colon = False

    def starts_operand(self, before: Atom | None) -> bool:
        """Return True if an operator after `before` is a prefix operator, as it has no left operand."""
        if before is None or before.unary:
            return True
        return before.text in "([{,:;" or before.text in _OPERATORS or before.text in WORDS

    def blank(self, before: Atom, atom: Atom) -> bool:
        a, b = before.text, atom.text
        if a in "([{" or b in ")]}" or b in ",;:" or before.unary or a == ".":
            return False
        if b == ".":
            return a[0].isdigit()  # `1 .real`: without the blank a float
        if a == ":":
            return not self._tight_colon
        if a == "=" or b == "=":
            return self._wide_equals()
        if b in "([" and not atom.unary:
            return a in WORDS or a in _OPERATORS or a in ",;"
        return True

    def _wide_equals(self) -> bool:
        if self._open[-1] == "":
            return True
        return self._params and self._annotated and len(self._open) == 2

    def step(self, atom: Atom, before: Atom | None) -> None:
        text = atom.text
        if text in "([{" and text:
            self._open.append(text)
            self._lambdas.append(0)
        elif text in ")]}" and text and len(self._open) > 1:
            self._open.pop()
            self._lambdas.pop()
            self._params = self._params and len(self._open) > 1
        elif text == "lambda":
            self._lambdas[-1] += 1
        elif text == ":":
            of_lambda = self._lambdas[-1] > 0
            self._lambdas[-1] -= of_lambda
            self._tight_colon = self._open[-1] == "[" and not of_lambda
            self._annotated = self._annotated or len(self._open) == 2
        elif text == "," and len(self._open) == 2:
            self._annotated = False


# ---------------------------------------------------------------- the tree of brackets


def build(atoms: list[Atom | Comment]) -> list[Part]:
    """Atoms and comments as a sequence with groups."""
    top: list[Part] = []
    stack: list[tuple[list[Part], Group | None]] = [(top, None)]
    for atom in atoms:
        parts, group = stack[-1]
        if isinstance(atom, Comment):
            _add_comment(parts, group, atom)
        elif atom.text in ("(", "[", "{"):
            opened = Group(atom)
            parts.append(opened)
            stack.append((opened.items[0], opened))
        elif atom.text in (")", "]", "}") and group is not None:
            group.close = atom.text
            stack.pop()
            group.width = _flat_width(group)
        elif atom.text == "," and group is not None:
            group.items.append([])
            stack[-1] = (group.items[-1], group)
        else:
            parts.append(atom)
    return top


def _add_comment(parts: list[Part], group: Group | None, comment: Comment) -> None:
    """A comment behind a comma belongs to the item before the comma."""
    if group is not None and not parts and not comment.own_line and len(group.items) > 1:
        group.items[-2].append(comment)
    else:
        parts.append(comment)


def _flat_width(group: Group) -> int:
    inside = 0
    for number, item in enumerate(group.items):
        if number and item:
            inside += 2  # comma and blank
        elif number:
            inside += 1  # a comma at the end
        inside += sum(p.width for p in item) - (item[0].space if item else 0)
    return min(NEVER, group.open.width + inside + len(group.close))


# ---------------------------------------------------------------- laying out


class Layout:
    """Writes the parts of one logical line, the first line of which is indented by `indent`."""

    def __init__(self, indent: int) -> None:
        self.lines: list[str] = [" " * indent]
        self._ended = False  # a comment ended the line: what follows starts a new one

    def _text(self, text: str, indent: int) -> None:
        if self._ended:
            self._newline(indent)
            text = text.lstrip(" ")
        self.lines[-1] += text

    def _newline(self, indent: int) -> None:
        self.lines.append(" " * indent)
        self._ended = False

    @property
    def _column(self) -> int:
        last = self.lines[-1]
        return len(last) - (last.rfind("\n") + 1)

    def _comment(self, comment: Comment, indent: int) -> None:
        if comment.own_line or self._ended:
            if self.lines[-1].strip() or self._ended:
                self._newline(indent)
            self.lines[-1] += comment.text
        else:
            self.lines[-1] += ("  " if self.lines[-1].strip() else "") + comment.text
        self._ended = True

    def parts(self, parts: list[Part], indent: int, inner: int, tail: int = 0, first: bool = False) -> None:
        """`parts` in sequence; groups that break close at `indent`, lines after comments start at `inner`.

        `tail` is the width of what follows on the same line. With `first`, the first part has no blank before it.
        """
        reach = _reaches(parts, tail)
        for number, part in enumerate(parts):
            lead = "" if first and number == 0 else " " * part.space
            if isinstance(part, Comment):
                self._comment(part, inner)
            elif isinstance(part, Atom):
                self._text(lead + part.text, inner)
            else:
                self._text(lead + part.open.text, inner)
                self._group(part, indent, reach[number])

    def _group(self, group: Group, indent: int, reach: int) -> None:
        """Write a group after its opening bracket. `reach` is the width that has to fit behind it on the line."""
        rest = group.width - group.open.width
        if not _breakable(group) or self._column + rest + reach <= WIDTH:
            self._flat(group, indent)
            return
        inner = indent + STEP
        if group.width < NEVER and inner + rest - len(group.close) <= WIDTH and not group.trailing_comma:
            self._newline(inner)
            self._flat(group, inner, close=False)
        elif group.width < NEVER and _fills(group):
            self._fill(group, inner)
        else:
            self._one_per_line(group, inner)
        self._newline(indent)
        self.lines[-1] += group.close

    def _flat(self, group: Group, indent: int, close: bool = True) -> None:
        for number, item in enumerate(group.items):
            if number:
                self.lines[-1] += ", " if item else ","
            self.parts(item, indent, indent, first=True)
        if close:
            self.lines[-1] += group.close

    def _fill(self, group: Group, inner: int) -> None:
        self._newline(inner)
        for number, item in enumerate(group.items):
            if not item:
                break
            comma = 1 if number + 1 < len(group.items) else 0
            width = sum(p.width for p in item) - item[0].space
            if self.lines[-1].strip():
                if self._column + 1 + width + comma > WIDTH:
                    self._newline(inner)
                else:
                    self.lines[-1] += " "
            self.parts(item, inner, inner, first=True)
            self.lines[-1] += "," * comma

    def _one_per_line(self, group: Group, inner: int) -> None:
        for number, item in enumerate(group.items):
            comma = number + 1 < len(group.items)
            after = len(item)
            while after and isinstance(item[after - 1], Comment):
                after -= 1
            body, behind = item[:after], item[after:]
            if number == 0 and item and isinstance(item[0], Comment) and not item[0].own_line:
                self._comment(item[0], inner)  # behind the opening bracket
                body, behind = body[1:], behind if body else behind[1:]
            while body and isinstance(body[0], Comment):
                self._comment(body[0], inner)
                body = body[1:]
            if body:
                self._newline(inner)
                self._item(body, inner, int(comma))
            if comma and (body or after):
                self._text(",", inner)
            for comment in behind:
                assert isinstance(comment, Comment)
                self._comment(comment, inner)

    def _item(self, item: list[Part], inner: int, tail: int) -> None:
        """Write one item on a separate line; an item that is too wide is split before its weakest operators."""
        width = sum(p.width for p in item) - item[0].space
        weakest = min((_strength(p) for p in item), default=NEVER)
        if inner + width + tail <= WIDTH or weakest == NEVER or any(isinstance(p, Comment) for p in item):
            self.parts(item, inner, inner + STEP, tail, first=True)
            return
        start = 0
        for number in range(1, len(item) + 1):
            if number == len(item) or _strength(item[number]) == weakest:
                if start:
                    self._newline(inner)
                self.parts(item[start:number], inner, inner + STEP, tail if number == len(item) else 0, first=True)
                start = number


def _reaches(parts: list[Part], tail: int) -> list[int]:
    """Return for each part the width of the text between it and the next possible line break."""
    reaches = [0] * len(parts)
    width = tail
    for number in range(len(parts) - 1, -1, -1):
        reaches[number] = width
        part = parts[number]
        if isinstance(part, Comment):
            width = 0
        elif isinstance(part, Group):
            width = part.open.width if _breakable(part) else width + part.width
        else:
            line, several, _ = part.text.partition("\n")
            width = len(line) + part.space + (0 if several else width)
    return reaches


def _breakable(group: Group) -> bool:
    return group.width >= _MIN_BREAK


def _fills(group: Group) -> bool:
    """A list of many small things, such as numbers."""
    items = [i for i in group.items if i]
    return len(items) > 8 and all(
        sum(p.width for p in i) <= _FILL_ITEM and not any(isinstance(p, Group) for p in i) for i in items
    )


def _strength(part: Part) -> int:
    """Return the precedence of a binary operator, `NEVER` for all other parts: lines do not break there."""
    if isinstance(part, Atom) and not part.unary:
        return _PRECEDENCE.get(part.text, NEVER)
    return NEVER
