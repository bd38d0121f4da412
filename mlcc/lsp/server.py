"""The server: requests of the Language Server Protocol, answered by pygls's loop over standard input and output.

A check runs in one thread of its own, a moment after the last change. Requests that need the module wait for the check
of their text; completion does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote, urlsplit

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer

import mlcc
from mlcc.errors import CompileError, Diagnostic, Severity, Span
from mlcc.lsp.check import Checked, check_text
from mlcc.lsp.completion import Item, complete, parameters
from mlcc.lsp.document import Definition, Document
from mlcc.lsp.hover import hover, topic_page
from mlcc.lsp.positions import Positions

DELAY = 0.2  # seconds from the last change to the check
STACK = 64 << 20  # bytes of stack for a check: expressions are walked recursively
_SEVERITIES = {
    Severity.ERROR: lsp.DiagnosticSeverity.Error,
    Severity.WARNING: lsp.DiagnosticSeverity.Warning,
    Severity.NOTE: lsp.DiagnosticSeverity.Information,
}
_ITEM_KINDS = {
    "operator": lsp.CompletionItemKind.Function, "function": lsp.CompletionItemKind.Function,
    "keyword": lsp.CompletionItemKind.Keyword, "parameter": lsp.CompletionItemKind.Property,
    "variable": lsp.CompletionItemKind.Variable, "dtype": lsp.CompletionItemKind.EnumMember,
    "module": lsp.CompletionItemKind.Module, "class": lsp.CompletionItemKind.Class,
    "pass": lsp.CompletionItemKind.Function,
}  # fmt: skip
_SYMBOL_KINDS = {
    "class": lsp.SymbolKind.Class, "function": lsp.SymbolKind.Function, "block": lsp.SymbolKind.Namespace,
    "parameter": lsp.SymbolKind.Variable, "variable": lsp.SymbolKind.Variable,
}  # fmt: skip
_UNUSED = "W0303"


def path_of(uri: str) -> str:
    """Return the path of a `file:` URI; the URI itself for a text that is in no file."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else uri


class _Text:
    """A version of an open text, with what has been computed of it."""

    def __init__(self, uri: str, path: str, text: str, version: int | None, encoding: str) -> None:
        self.uri = uri
        self.path = path
        self.text = text
        self.version = version
        self.document = Document(text, path)
        self.positions = Positions(text, encoding)
        self.check: asyncio.Future[Checked] | None = None

    def range(self, start: int, end: int) -> lsp.Range:
        return lsp.Range(lsp.Position(*self.positions.position(start)), lsp.Position(*self.positions.position(end)))

    def offset(self, position: lsp.Position) -> int:
        return self.positions.offset(position.line, position.character)


class Server:
    """The texts that are open, and the answers to the requests about them."""

    def __init__(self) -> None:
        self.server = LanguageServer("mlcc", mlcc.__version__)
        self._texts: dict[str, _Text] = {}
        self._modules: dict[str, Checked] = {}  # the last check that found a module
        self._timers: dict[str, asyncio.Task[None]] = {}
        threading.stack_size(STACK)
        self._checker = ThreadPoolExecutor(1, "check")
        triggers = lsp.CompletionOptions(trigger_characters=[".", '"', "("], resolve_provider=True)
        signatures = lsp.SignatureHelpOptions(trigger_characters=["(", ","])
        handlers: list[tuple[str, Callable[..., Any], Any]] = [
            (lsp.TEXT_DOCUMENT_DID_OPEN, self.did_open, None),
            (lsp.TEXT_DOCUMENT_DID_CHANGE, self.did_change, None),
            (lsp.TEXT_DOCUMENT_DID_SAVE, self.did_save, None),
            (lsp.TEXT_DOCUMENT_DID_CLOSE, self.did_close, None),
            (lsp.TEXT_DOCUMENT_HOVER, self.hover, None),
            (lsp.TEXT_DOCUMENT_DEFINITION, self.definition, None),
            (lsp.TEXT_DOCUMENT_COMPLETION, self.completion, triggers),
            (lsp.COMPLETION_ITEM_RESOLVE, self.resolve, None),
            (lsp.TEXT_DOCUMENT_SIGNATURE_HELP, self.signature_help, signatures),
            (lsp.TEXT_DOCUMENT_FORMATTING, self.formatting, None),
            (lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL, self.symbols, None),
        ]
        for method, handler, options in handlers:
            self.server.feature(method, options)(functools.partial(handler))  # pygls sets attributes of a handler

    # ------------------------------------------------------------ texts and their findings

    def _text(self, uri: str) -> _Text:
        opened = self.server.workspace.get_text_document(uri)
        text = self._texts.get(uri)
        if text is None or text.version != opened.version or text.text != opened.source:
            units = self.server.workspace.position_encoding or "utf-16"
            path = path_of(uri)
            if opened.language_id == "mls" and not path.endswith(".mls"):  # a new text, which is in no file yet
                path += ".mls"
            text = _Text(uri, path, opened.source, opened.version, getattr(units, "value", units))
            self._texts[uri] = text
        return text

    async def _checked(self, text: _Text) -> Checked:
        """Return the check of a text, which is made once."""
        if text.check is None:
            loop = asyncio.get_running_loop()
            text.check = loop.run_in_executor(self._checker, check_text, text.text, text.path)
        checked = await asyncio.shield(text.check)
        if checked.module is not None:
            self._modules[text.uri] = checked
        return checked

    def _schedule(self, uri: str, delay: float) -> None:
        """Check a text after a moment, if it does not change in between."""
        timer = self._timers.pop(uri, None)
        if timer is not None:
            timer.cancel()
        self._timers[uri] = asyncio.get_running_loop().create_task(self._publish(uri, delay))

    async def _publish(self, uri: str, delay: float) -> None:
        await asyncio.sleep(delay)
        text = self._text(uri)
        try:
            checked = await self._checked(text)
        except Exception as exc:  # noqa: BLE001 - a bug in a check must not end the server
            self.server.window_log_message(lsp.LogMessageParams(lsp.MessageType.Error, f"the check failed: {exc!r}"))
            return
        if self._texts.get(uri) is not text:
            return
        self.server.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(
                uri=uri, version=text.version, diagnostics=[_diagnostic(d, text) for d in checked.diagnostics]
            )
        )

    async def did_open(self, params: lsp.DidOpenTextDocumentParams) -> None:
        self._schedule(params.text_document.uri, 0)

    async def did_change(self, params: lsp.DidChangeTextDocumentParams) -> None:
        self._schedule(params.text_document.uri, DELAY)

    async def did_save(self, params: lsp.DidSaveTextDocumentParams) -> None:
        """Check again: files that the text reads may have changed."""
        text = self._texts.get(params.text_document.uri)
        if text is not None:
            text.check = None
        self._schedule(params.text_document.uri, 0)

    async def did_close(self, params: lsp.DidCloseTextDocumentParams) -> None:
        uri = params.text_document.uri
        timer = self._timers.pop(uri, None)
        if timer is not None:
            timer.cancel()
        self._texts.pop(uri, None)
        self._modules.pop(uri, None)
        self.server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri=uri, diagnostics=[]))

    # ------------------------------------------------------------ requests

    async def hover(self, params: lsp.HoverParams) -> lsp.Hover | None:
        text = self._text(params.text_document.uri)
        checked: Checked | None = None
        with contextlib.suppress(Exception):  # which is logged where findings are published
            checked = await self._checked(text)
        if checked is None or checked.module is None:
            checked = self._modules.get(text.uri)
        found = hover(text.document, text.offset(params.position), checked)
        if found is None:
            return None
        content = lsp.MarkupContent(lsp.MarkupKind.Markdown, found.markdown)
        return lsp.Hover(content, text.range(found.start, found.end))

    def definition(self, params: lsp.DefinitionParams) -> lsp.Location | None:
        text = self._text(params.text_document.uri)
        found = text.document.definition_at(text.offset(params.position))
        return None if found is None else lsp.Location(text.uri, text.range(found.start, found.end))

    def completion(self, params: lsp.CompletionParams) -> lsp.CompletionList:
        text = self._text(params.text_document.uri)
        items = complete(text.document, text.offset(params.position))
        return lsp.CompletionList(is_incomplete=False, items=[_item(item, at) for at, item in enumerate(items)])

    def resolve(self, item: lsp.CompletionItem) -> lsp.CompletionItem:
        """Add the page about an item."""
        from mlcc.lsp.hover import markdown
        from mlcc.reference.pages import pages

        topic = item.data if isinstance(item.data, str) else ""
        if topic:
            page = topic_page(topic, topic.startswith("sch."))
            if page is None and "." not in topic:
                page = next((markdown(p) for p in pages(topic)), None)
            if page is not None:
                item.documentation = lsp.MarkupContent(lsp.MarkupKind.Markdown, page)
        return item

    def signature_help(self, params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
        text = self._text(params.text_document.uri)
        call = text.document.call_at(text.offset(params.position))
        names = parameters(call.callee) if call is not None else []
        if call is None or not names:
            return None
        page = topic_page(call.callee, text.document.is_script) or ""
        label = next((line for line in page.splitlines() if "(" in line), call.callee)
        active = names.index(call.keyword) if call.keyword in names else call.argument
        shown = [lsp.ParameterInformation(label=name) for name in names]
        return lsp.SignatureHelp([lsp.SignatureInformation(label=label, parameters=shown)], 0, active)

    def formatting(self, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit] | None:
        """Format as `mlcc fmt` does; a text with errors stays."""
        from mlcc.grammar.fmt.canonical import format_text

        text = self._text(params.text_document.uri)
        try:
            formatted = format_text(text.text.removeprefix("\ufeff"), text.path)
        except CompileError:
            return None
        return [] if formatted == text.text else [lsp.TextEdit(text.range(0, len(text.text)), formatted)]

    def symbols(self, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        text = self._text(params.text_document.uri)
        return _symbols([d for d in text.document.definitions if d.kind in _SYMBOL_KINDS], text)


# ---------------------------------------------------------------- answers in the types of the protocol


def _diagnostic(found: Diagnostic, text: _Text) -> lsp.Diagnostic:
    lines = [found.message]
    related = []
    if found.primary.text:
        lines.append(found.primary.text)
    for label in found.related:
        place = _range_of(label.span, text)
        if place is None:
            lines.append(f"note: {label.text}")
        else:
            related.append(lsp.DiagnosticRelatedInformation(lsp.Location(text.uri, place), label.text))
    if found.help:
        lines.append(f"help: {found.help}")
    return lsp.Diagnostic(
        range=_range_of(found.primary.span, text) or text.range(0, len(text.text.partition("\n")[0])),
        message="\n".join(lines), severity=_SEVERITIES[found.severity], code=found.code, source="mlcc",
        related_information=related, tags=[lsp.DiagnosticTag.Unnecessary] if found.code == _UNUSED else None,
    )  # fmt: skip


def _range_of(span: Span | None, text: _Text) -> lsp.Range | None:
    """The range of a span, on its first line if it covers several; None for another text."""
    if span is None or span.source.text != text.text:
        return None
    end = text.text.find("\n", span.start, span.end)
    return text.range(span.start, span.end if end < 0 else end)


def _item(item: Item, at: int) -> lsp.CompletionItem:
    return lsp.CompletionItem(
        label=item.label, kind=_ITEM_KINDS[item.kind], detail=item.detail or None, data=item.topic or None,
        sort_text=f"{at:05}",
    )  # fmt: skip


def _symbols(definitions: list[Definition], text: _Text) -> list[lsp.DocumentSymbol]:
    """The definitions as a tree: each under the smallest class, function or block that holds it."""
    top: list[lsp.DocumentSymbol] = []
    holders: list[tuple[Definition, list[lsp.DocumentSymbol]]] = []
    for d in definitions:
        start, end = d.whole if d.whole[1] else d.statement
        children: list[lsp.DocumentSymbol] = []
        symbol = lsp.DocumentSymbol(
            name=d.name or "block", kind=_SYMBOL_KINDS[d.kind], range=text.range(min(start, d.start), max(end, d.end)),
            selection_range=text.range(d.start, d.end), detail=d.kind, children=children,
        )  # fmt: skip
        while holders and not holders[-1][0].whole[0] <= d.start <= holders[-1][0].whole[1]:
            holders.pop()
        (holders[-1][1] if holders else top).append(symbol)
        if d.whole[1]:
            holders.append((d, children))
    return top


def serve() -> None:
    """Serve one client over standard input and output until it says `exit`."""
    output = sys.stdout.buffer
    sys.stdout = sys.stderr  # what anything prints must not come between the messages
    Server().server.start_io(sys.stdin.buffer, output)
