"""What draws: lines that stay, lines that scroll, and the dialogs that are made of them."""

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
"""Key → what it means, and what it answers."""


class Lines(Widget):
    """Lines of text as they are."""

    class Sized(Message):
        """There is more room, or less."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self.lines: list[Text] = []

    def show(self, lines: Sequence[Text]) -> None:
        """Show these from now on."""
        if [*lines] != self.lines or any(a.style != b.style for a, b in zip(lines, self.lines, strict=True)):
            self.lines = [*lines]
            self.refresh()

    def on_resize(self) -> None:
        """Have it drawn for its new size."""
        self.post_message(self.Sized())

    def render_line(self, y: int) -> Strip:
        """One of them, cut or filled to the width."""
        text = self.lines[y] if y < len(self.lines) else Text()
        return _strip(text, self.app.console).adjust_cell_length(self.size.width)


class Pages(ScrollView, can_focus=True):
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
        """Say how large it is."""
        self.virtual_size = Size(max((line.cell_len for line in self.lines), default=0), len(self.lines))

    def render_line(self, y: int) -> Strip:
        """One of them, where it is scrolled to."""
        x, first = self.scroll_offset
        text = self.lines[first + y] if first + y < len(self.lines) else Text()
        return _strip(text, self.app.console).crop_extend(x, x + self.size.width, None)


class Dialog(ModalScreen[str]):
    """Something to read, and keys that answer it; Escape answers nothing, which is the empty string."""

    AUTO_FOCUS = None

    BINDINGS: ClassVar[list[BindingType]] = [("ctrl+c", "leave", "")]
    CSS = """
    Dialog { align: center middle; }
    Dialog Vertical { width: 90%; max-width: 110; height: auto; max-height: 100%; border: solid ansi_default; padding: 0 1; }
    Dialog Vertical.full { width: 100%; max-width: 100%; height: 100%; max-height: 100%; border: none; padding: 0; }
    Dialog Pages { scrollbar-size: 1 1; }
    Dialog .full Pages { height: 1fr; }
    Dialog Lines { height: 1; }
    Dialog TextArea { height: 5; border: none; border-top: solid ansi_default; padding: 0; }
    """

    def __init__(
        self, title: str, body: Sequence[Text], keys: Keys, *, full: bool = False, typed: bool = False
    ) -> None:
        super().__init__()
        self.heading = title
        self.body = [*body]
        self.keys = keys
        self.full = full
        self.escape_input = typed
        self.use: Callable[[str], None] = lambda _: None
        """What is done with the answer, if it is answered."""
        self._early: list[events.Key] | None = []
        """Keys that came before it was on the screen; none: it is."""

    def compose(self) -> ComposeResult:
        """Its title, what is to be read, where to type, and the keys."""
        width = self.app.size.width if self.full else min(110, self.app.size.width * 9 // 10) - 6
        body = self.body if self.full else [part for line in self.body for part in _wrapped(line, max(width, 10))]
        with Vertical(classes="full" if self.full else ""):
            yield (title := Lines("title"))
            yield Pages(body)
            if self.escape_input:
                yield Typed()
            yield (keys := Lines("keys"))
        title.show([Text(self.heading, "bold")])
        shown = [f"{key} {what}" for key, (what, _) in self.keys.items()]
        typed = ["Enter sends", "Ctrl+J new line"] if self.escape_input else []
        keys.show([Text("   ".join([*typed, *shown, "Esc back"]), "dim")])

    def on_mount(self) -> None:
        """Keys go to where one types, else to what is read."""
        self._fit()
        self.app.call_later(self._begin)

    async def _begin(self) -> None:
        """Keys go to where one types, else to what is read; first those that came already."""
        self.set_focus(self.query_one(Typed if self.escape_input else Pages))
        early, self._early = self._early or [], None
        for key in early:
            await self.app.on_event(key)

    def takes(self, event: events.Key) -> bool:
        """Is this key used up, or kept until the dialog is on the screen? Otherwise it goes to where the focus is."""
        if self._early is not None:
            self._early.append(event)
            return True
        pressed = event.character or event.key
        if event.key == "escape":
            self.answer("")
        elif not self.escape_input and pressed in self.keys:
            self.answer(self.keys[pressed][1])
        else:
            return False
        return True

    def answer(self, text: str) -> None:
        """Be gone, and have the answer used."""
        self.dismiss(text)
        if text:
            self.use(text)

    def on_resize(self) -> None:
        """Title and keys stay on the screen, however long the rest is."""
        self._fit()

    def _fit(self) -> None:
        pages = self.query_one(Pages)
        if not self.full:
            pages.styles.height = max(0, min(len(pages.lines), self.app.size.height - (9 if self.escape_input else 4)))

    def action_leave(self) -> None:
        """Answer nothing."""
        self.answer("")


class Typed(TextArea):
    """Text of one's own: Enter is done, Ctrl+J a new line; what is pasted stays in one piece."""

    class Done(Message):
        """It is finished."""

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
    """A line as it is drawn; a text's own style is but a default until it is laid over its parts."""
    drawn = text.copy()
    drawn.stylize_before(text.style)
    return Strip(drawn.render(console))


def _wrapped(line: Text, width: int) -> list[Text]:
    import textwrap

    parts = textwrap.wrap(line.plain, width, replace_whitespace=False, drop_whitespace=False) or [""]
    return [Text(part, line.style) for part in parts]
