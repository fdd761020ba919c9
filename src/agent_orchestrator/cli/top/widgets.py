"""Widgets of the board: fixed lines, scrollable lines, and the dialogs made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from rich.console import Console
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import TextArea

Keys = Mapping[str, tuple[str, str]]
"""Key → its label, and the answer that it gives."""


class StaticLines(Widget):
    """Fixed lines of text."""

    class Sized(Message):
        """Posted when the widget's size has changed."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self.lines: list[Text] = []

    def show(self, lines: Sequence[Text]) -> None:
        """Show these lines."""
        if [*lines] != self.lines or any(a.style != b.style for a, b in zip(lines, self.lines, strict=True)):
            self.lines = [*lines]
            self.refresh()

    def on_resize(self) -> None:
        """Post a message so that the lines are drawn for the new size."""
        self.post_message(self.Sized())

    def render_line(self, y: int) -> Strip:
        """Return one line, cut or padded to the width."""
        text = self.lines[y] if y < len(self.lines) else Text()
        return _strip(text, self.app.console).adjust_cell_length(self.size.width)


class ScrollableLines(ScrollView, can_focus=True):
    """Any number of lines, scrolled by keys and wheel."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("j", "scroll_down", ""),
        ("k", "scroll_up", ""),
        ("space", "page_down", ""),
        ("b", "page_up", ""),
        ("g", "scroll_home", ""),
        ("G", "scroll_end", ""),
    ]

    def __init__(self, lines: Sequence[Text]) -> None:
        super().__init__()
        self.lines = [*lines]

    def on_mount(self) -> None:
        """Set the size of the content."""
        self.virtual_size = Size(max((line.cell_len for line in self.lines), default=0), len(self.lines))

    def render_line(self, y: int) -> Strip:
        """Return one line at the scroll offset."""
        x, first = self.scroll_offset
        text = self.lines[first + y] if first + y < len(self.lines) else Text()
        return _strip(text, self.app.console).crop_extend(x, x + self.size.width, None)


class ModalDialog(ModalScreen[str]):
    """Text to read and keys that answer it; Escape gives the empty answer."""

    AUTO_FOCUS = None

    BINDINGS: ClassVar[list[BindingType]] = [("ctrl+c", "leave", "")]
    CSS = """
    ModalDialog { align: center middle; }
    ModalDialog Vertical { width: 90%; max-width: 110; height: auto; max-height: 100%; border: solid ansi_default; padding: 0 1; }
    ModalDialog Vertical.full { width: 100%; max-width: 100%; height: 100%; max-height: 100%; border: none; padding: 0; }
    ModalDialog ScrollableLines { scrollbar-size: 1 1; }
    ModalDialog .full ScrollableLines { height: 1fr; }
    ModalDialog StaticLines { height: 1; }
    ModalDialog TextArea { height: 5; border: none; border-top: solid ansi_default; padding: 0; }
    """

    def __init__(
        self,
        title: str,
        body: Sequence[Text],
        keys: Keys,
        answer_handler: Callable[[str], None],
        *,
        is_full_screen: bool = False,
        has_text_field: bool = False,
    ) -> None:
        super().__init__()
        self.heading = title
        self.body = [*body]
        self.keys = keys
        self.is_full_screen = is_full_screen
        self.has_text_field = has_text_field
        self.answer_handler = answer_handler
        """Called with the answer, unless it is empty."""
        self._early_keys: list[events.Key] | None = []
        """Keys that arrived before the dialog was on the screen; None once it is."""

    def compose(self) -> ComposeResult:
        """Yield the title, the text, the text field and the keys."""
        width = self.app.size.width if self.is_full_screen else min(110, self.app.size.width * 9 // 10) - 6
        body = (
            self.body
            if self.is_full_screen
            else [part for line in self.body for part in _wrapped(line, max(width, 10))]
        )
        with Vertical(classes="full" if self.is_full_screen else ""):
            yield (title := StaticLines("title"))
            yield ScrollableLines(body)
            if self.has_text_field:
                yield TextField()
            yield (keys := StaticLines("keys"))
        title.show([Text(self.heading, "bold")])
        key_texts = [f"{key} {meaning}" for key, (meaning, _) in self.keys.items()]
        text_field_hints = ["Enter sends", "Ctrl+J new line"] if self.has_text_field else []
        keys.show([Text("   ".join([*text_field_hints, *key_texts, "Esc back"]), "dim")])

    def on_mount(self) -> None:
        """Set the height and schedule the focus."""
        self._fit()
        self.app.call_later(self._take_focus)

    async def _take_focus(self) -> None:
        """Focus the text field or the text, then handle the keys that arrived early."""
        self.set_focus(self.query_one(TextField if self.has_text_field else ScrollableLines))
        keys, self._early_keys = self._early_keys or [], None
        for key in keys:
            await self.app.on_event(key)

    def consume_key(self, event: events.Key) -> bool:
        """Return whether this key was handled, or kept until the dialog is on the screen; otherwise the focused widget gets it."""
        if self._early_keys is not None:
            self._early_keys.append(event)
            return True
        pressed = event.character or event.key
        if event.key == "escape":
            self.answer("")
        elif not self.has_text_field and pressed in self.keys:
            self.answer(self.keys[pressed][1])
        else:
            return False
        return True

    def answer(self, text: str) -> None:
        """Close the dialog and pass its answer on."""
        self.dismiss(text)
        if text:
            self.answer_handler(text)

    def on_resize(self) -> None:
        """Keep title and keys on the screen, however long the text is."""
        self._fit()

    def _fit(self) -> None:
        pages = self.query_one(ScrollableLines)
        if not self.is_full_screen:
            pages.styles.height = max(
                0, min(len(pages.lines), self.app.size.height - (9 if self.has_text_field else 4))
            )

    def action_leave(self) -> None:
        """Close the dialog without an answer."""
        self.answer("")


class TextField(TextArea):
    """A text field: Enter submits, Ctrl+J starts a new line; a paste stays in one piece."""

    class Done(Message):
        """Posted when the text is submitted."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self) -> None:
        super().__init__(highlight_cursor_line=False)

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self.post_message(self.Done(self.text))
        elif event.key in ("ctrl+j", "shift+enter"):
            event.stop()
            event.prevent_default()
            self.insert("\n")
        else:
            await super()._on_key(event)


def _strip(text: Text, console: Console) -> Strip:
    """Return a line as a strip; the text's own style is applied below the styles of its parts."""
    drawn = text.copy()
    drawn.stylize_before(text.style)
    return Strip(drawn.render(console))


def _wrapped(line: Text, width: int) -> list[Text]:
    import textwrap

    parts = textwrap.wrap(line.plain, width, replace_whitespace=False, drop_whitespace=False) or [""]
    return [Text(part, line.style) for part in parts]
