"""The full-screen board itself: what is on the screen, and which key does what."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

from agent_orchestrator.cli import out
from agent_orchestrator.cli.sessions.board import Session, pull_text
from agent_orchestrator.cli.top import actions, layout
from agent_orchestrator.cli.top.feed import Feed, Look
from agent_orchestrator.cli.top.fleet import Filter, Fleet, Question, arranged, chosen, moved
from agent_orchestrator.cli.top.keys import BOARD_KEYS, DECISIONS, KEYS, OF_BOARD, OF_CHANGE, YES, hints
from agent_orchestrator.cli.top.widgets import Dialog, Lines, Typed
from agent_orchestrator.client.daemon_client import Client
from agent_orchestrator.errors import AoError

REDRAWN = 10.0
"""Seconds after which the ages are drawn anew."""
FADES = 15.0
"""Seconds after which good news is not shown any more."""

_ENDED = ("queued", "exited", "failed", "interrupted")
"""Whose terminals do not change."""

Act = Callable[[Client], str]


class _Said(NamedTuple):
    """What the person was told last."""

    text: str
    bad: bool
    at: datetime

    def line(self, width: int, now: datetime) -> Text:
        """As it is shown; errors stay until something else is told."""
        if self.bad:
            return Text(out.fit(f"error: {self.text}", width), "bold red")
        return Text(out.fit(self.text, width) if (now - self.at).total_seconds() < FADES else "")


class Changed(Message):
    """There is news of the fleet."""


class Told(Message):
    """What came of something."""

    def __init__(self, text: str, *, bad: bool = False, then: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.text = text
        self.bad = bad
        self.then = then


class Seen(Message):
    """What a session's terminal shows."""

    def __init__(self, session: str, text: str) -> None:
        super().__init__()
        self.session = session
        self.text = text


class Top(App[None]):
    """The board of one project, or of all."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; overflow: hidden; }
    #header, #told, #keys, #rule { height: 1; }
    #board { height: 1fr; }
    #filter { display: none; height: 1; border: none; padding: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key, action, "", priority=True) for key, action in BOARD_KEYS),
        ("ctrl+z", "suspend_process", ""),
        ("ctrl+c", "quit", ""),
    ]

    def __init__(
        self,
        project: str | None,
        *,
        connect: Callable[[], Client] = lambda: Client(start=False),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        here: Callable[[Sequence[str], bool], str] = actions.here,
    ) -> None:
        """`connect` makes clients, one for each thread; `here` runs a command on this terminal."""
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.animation_level = "none"
        self.project = project
        self.wanted = Filter("", project)
        self.fleet = Fleet()
        self.away = ""
        self.selected: str | None = None
        self.previewed = True
        self._connect, self._now, self._here = connect, now, here
        self._offsets: dict[str, int] = {}
        self._order: list[str] = []
        self._drawn = layout.Drawn()
        self._screens: dict[str, str] = {}
        self._told = _Said("", False, now())
        self._held: list[events.Key] | None = None
        """Keys behind an Enter that a text field has not dealt with yet; none: there is no such Enter."""
        self._feed = Feed(connect(), lambda: self._post(Changed()))
        self._look = Look(connect(), lambda session, text: self._post(Seen(session, text)))

    @property
    def defect(self) -> Exception | None:
        """What ended it, if it was none of the person's doing."""
        return self._exception

    def _fatal_error(self) -> None:
        """End without a traceback; whoever ran it tells of the defect in one line."""
        self._close_messages_no_wait()

    # -- the screen ----------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        for name in ("header", "board", "rule", "preview", "told"):
            yield Lines(name)
        yield Input(
            placeholder="words, status:, project:, agent:, column:", id="filter", select_on_focus=False, disabled=True
        )
        yield Lines("keys")

    def on_mount(self) -> None:
        """Begin to listen."""
        self.set_interval(REDRAWN, self.redraw)
        self._feed.start()
        self._look.start()

    def on_unmount(self) -> None:
        """Let the threads end."""
        self._feed.end()
        self._look.end()

    def on_resize(self, event: events.Resize) -> None:
        """Give each part its room."""
        self._lay_out(event.size.height)

    def on_lines_sized(self) -> None:
        """Draw for the new size."""
        self.redraw()

    def on_changed(self, message: Changed) -> None:
        """Draw how things stand now."""
        message.stop()
        gone = self.away
        self.fleet, self.away = self._feed.news()
        if gone and not self.away:
            self.tell("the daemon is back")
        self.redraw()

    def on_seen(self, message: Seen) -> None:
        """Draw what the terminal shows."""
        message.stop()
        self._screens = {message.session: message.text}
        self.redraw()

    def on_told(self, message: Told) -> None:
        """Say it, and go on."""
        message.stop()
        self.tell(message.text, bad=message.bad)
        if message.then:
            message.then()

    def tell(self, text: str, *, bad: bool = False) -> None:
        """One line for the person, until there is another."""
        self._told = _Said(out.one_line(text), bad, self._now())
        self.redraw()

    def redraw(self) -> None:
        """Draw everything that changed."""
        if not self.is_running or not self.screen_stack:
            return
        columns = arranged(self.fleet, self.wanted)
        self.selected = chosen(columns, self.selected, self._order)
        self._order = [card.id for cards in columns.values() for card in cards]
        board, width = self._lines("board"), self.size.width
        self._drawn = layout.board(columns, self.selected, (width, board.size.height), self._now(), self._offsets)
        board.show(self._drawn.lines if self._order else [Text(out.fit(self._nothing(), width))])
        header = layout.header(self.fleet, columns, self.project, self.wanted.text, self.away, width)
        self._lines("header").show([header])
        self._lines("told").show([self._told.line(width, self._now())])
        self._lines("rule").show([layout.rule(self._drawn.more, width)])
        self._lines("keys").show([layout.keys(hints((self._session() or {}).get("runtime")), width)])
        self._draw_preview()

    def _draw_preview(self) -> None:
        session, place = self._session(), self._lines("preview")
        again = session is not None and session.get("column") != "Done" and session.get("status") not in _ENDED
        self._look.at(self.selected if self.previewed and not self.away else None, again=again)
        lines = []
        if session is not None:
            shown = self._screens.get(str(session["id"]))
            size = (self.size.width, place.size.height)
            lines = layout.preview(session, self.fleet.asked(str(session["id"])), shown, size, self._now())
        place.show(lines)

    def _nothing(self) -> str:
        if not self.fleet.ready:
            return "…"
        if self.wanted.text:
            return f"Nothing matches {out.one_line(self.wanted.text)}: Esc takes the filter away."
        return 'No sessions here. Start one: ao new "what is to be done"'

    def _lay_out(self, height: int) -> None:
        shown = self.previewed and height >= 12
        self._lines("rule").display = self._lines("preview").display = shown
        self._lines("preview").styles.height = max(4, height // 3)

    def _lines(self, name: str) -> Lines:
        return self.screen_stack[0].query_one(f"#{name}", Lines)

    def _session(self) -> Session | None:
        return self.fleet.sessions.get(self.selected or "")

    def _post(self, message: Message) -> None:
        if self.is_running:
            self.post_message(message)

    # -- keys ----------------------------------------------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        """An open dialog gets the keys first; those behind an Enter wait until it is known what it closed."""
        if isinstance(event, events.Key) and not event.is_forwarded:
            if self._held is not None:
                self._held.append(event)
                return
            dialog = self.screen if self.screen_stack and isinstance(self.screen, Dialog) else None
            if dialog and dialog.takes(event):
                return
            if event.key == "enter" and isinstance(self.focused, Typed | Input):
                self._held = []
        await super().on_event(event)

    async def _go_on(self) -> None:
        """The Enter is dealt with: so are the keys behind it now."""
        held, self._held = self._held or [], None
        for key in held:
            await self.on_event(key)

    async def on_typed_done(self, message: Typed.Done) -> None:
        """What was typed is the dialog's answer."""
        if message.text.strip() and isinstance(self.screen, Dialog):
            self.screen.answer(message.text)
        await self._go_on()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's shape
        """The board's keys are for the board: not while a dialog is open, nor while a filter is typed."""
        if action not in OF_BOARD:
            return True
        if isinstance(self.screen, Dialog):
            return False
        return self.screen.focused is None or action == "unfilter"

    # -- moving and filtering ------------------------------------------------------------------------------------------

    def action_move(self, across: int, down: int) -> None:
        """Select another session."""
        self.selected = moved(arranged(self.fleet, self.wanted), self.selected, across, down)
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        """Select what was clicked on."""
        board = self._lines("board")
        if event.widget is board and (found := self._drawn.at(event.x, event.y)):
            self.selected = found
            self.redraw()

    def on_mouse_scroll_down(self) -> None:
        """The wheel goes through the sessions."""
        self.action_move(0, 1)

    def on_mouse_scroll_up(self) -> None:
        """And back."""
        self.action_move(0, -1)

    def action_preview(self) -> None:
        """Show or hide the terminal."""
        self.previewed = not self.previewed
        self._lay_out(self.size.height)
        self.redraw()

    def action_filter(self) -> None:
        """Type which sessions are shown."""
        field = self._typing(True)
        field.value = self.wanted.text
        field.cursor_position = len(field.value)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show them while it is typed."""
        if self.focused is event.input:
            self._filter(event.value)

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Back to the board."""
        self._filter(event.value)
        self._typing(False)
        await self._go_on()

    def action_unfilter(self) -> None:
        """Show all of them again."""
        self._filter("")
        self._typing(False)

    def _typing(self, on: bool) -> Input:
        field = self.query_one("#filter", Input)
        field.display, field.disabled = on, not on
        self._lines("told").display = not on
        self.screen.set_focus(field if on else None)
        return field

    def _filter(self, text: str) -> None:
        self.wanted = Filter(text, self.project)
        self.redraw()

    # -- what is done to a session -------------------------------------------------------------------------------------

    def _chosen(self) -> Session | None:
        session = self._session()
        if session is None:
            self.tell("no session is selected", bad=True)
        return session

    def do(self, act: Act, then: Callable[[], None] | None = None) -> None:
        """Have it done by a thread of its own, and tell what came of it."""

        def run() -> None:
            try:
                with self._connect() as ao:
                    self._post(Told(act(ao), then=then))
            except AoError as error:
                self._post(Told(str(error), bad=True))
            except Exception as error:  # a defect is told like any error; the board goes on
                self._post(Told(f"unexpected {type(error).__name__}: {error}", bad=True))

        threading.Thread(target=run, daemon=True).start()

    def ask(self, dialog: Dialog, use: Callable[[str], None]) -> None:
        """Use what a dialog is answered, if it is."""
        dialog.use = use
        self.push_screen(dialog)

    def sure(self, question: str, more: str, act: Act) -> None:
        """Do it if the person says yes."""
        self.ask(Dialog(out.one_line(question), [Text(out.one_line(more))], YES), lambda _: self.do(act))

    def action_attach(self) -> None:
        """Its real terminal, here."""
        if session := self._chosen():
            self._step_out("attach", str(session["id"]))

    def action_edit(self) -> None:
        """Its workspace in the person's editor."""
        if session := self._chosen():
            self._step_out("open", str(session["id"]), "--editor")

    def _step_out(self, *argv: str) -> None:
        """Leave the terminal to a command of `ao`, and come back."""
        if self.is_headless:
            problem = self._here(actions.command(*argv), self.no_color)
        else:
            with self.suspend():
                problem = self._here(actions.command(*argv), self.no_color)
        self.tell(problem or f"back from {argv[1]}", bad=bool(problem))
        self.redraw()

    def action_open(self) -> None:
        """A window of its own."""
        if session := self._chosen():
            name = str(session["id"])
            self.do(lambda _: actions.open_window(name))

    def action_send(self) -> None:
        """A message."""
        if session := self._chosen():
            self.send(str(session["id"]))

    def send(self, name: str) -> None:
        """Type a message to a session."""
        self.ask(
            Dialog(f"Message to {name}", [], {}, typed=True),
            lambda text: self.do(lambda ao: actions.send(ao, name, text)),
        )

    def action_answer(self) -> None:
        """The oldest thing that it asks."""
        if session := self._chosen():
            asked = self.fleet.asked(str(session["id"]))
            if asked:
                self._answer(str(session["id"]), asked[0])
            else:
                self.tell(f"{session['id']} asks nothing; s sends it a message")

    def _answer(self, name: str, question: Question) -> None:
        kind = str(question.get("kind"))
        title = f"{name} asks ({kind}, {out.age(question.get('since'), self._now())})"
        body = [Text(out.one_line(line), "dim") for line in question.get("context") or ()]
        body += [Text(line, "bold") for line in layout.lines_of(question.get("text") or "")]
        if reason := (question.get("permission") or {}).get("reason"):
            body.append(Text(f"why: {out.one_line(reason)}"))

        def give(decision: str, text: str) -> None:
            self.do(lambda ao: actions.answer(ao, name, question, decision, text))

        def decided(answer: str) -> None:
            if answer == "text":
                self.ask(Dialog(title, body, {}, typed=True), lambda text: give("", text))
            else:
                give(answer, "")

        if keys := DECISIONS.get(kind):
            self.ask(Dialog(title, body, keys), decided)
        else:
            self.ask(Dialog(title, body, {}, typed=True), lambda text: give("", text))

    def action_diff(self) -> None:
        """Its change, to be read and judged."""
        if not (session := self._chosen()):
            return
        name = str(session["id"])
        found: list[tuple[str, str]] = []

        def read(ao: Client) -> str:
            found.extend(actions.change(ao, name))
            return ""

        def show() -> None:
            lines = [Text(text, style) for text, style in found]
            self.ask(Dialog(f"{name}: its change", lines, OF_CHANGE, full=True), lambda key: self._judged(name, key))

        self.do(read, show)

    def _judged(self, name: str, key: str) -> None:
        {"approve": self.approve, "changes": self.changes, "merge": self.merge, "send": self.send}[key](name)

    def action_approve(self) -> None:
        """It is good."""
        if session := self._chosen():
            self.approve(str(session["id"]))

    def approve(self, name: str) -> None:
        """Approve a session's change."""
        self.sure(
            f"Approve the change of {name}?", self._pull(name), lambda ao: actions.review(ao, name, "approved", "")
        )

    def action_changes(self) -> None:
        """It is not good yet."""
        if session := self._chosen():
            self.changes(str(session["id"]))

    def changes(self, name: str) -> None:
        """Type what is to be different."""
        self.ask(
            Dialog(f"What is to change in {name}?", [], {}, typed=True),
            lambda text: self.do(lambda ao: actions.review(ao, name, "changes_requested", text)),
        )

    def action_merge(self) -> None:
        """Let it land."""
        if session := self._chosen():
            self.merge(str(session["id"]))

    def merge(self, name: str) -> None:
        """Let a session's change land, if that is meant."""
        base = self.fleet.sessions.get(name, {}).get("base")
        self.sure(f"Merge the change of {name} into {base}?", self._pull(name), lambda ao: actions.merge(ao, name))

    def _pull(self, name: str) -> str:
        shown = pull_text(self.fleet.sessions.get(name, {}))
        title = out.one_line(self.fleet.sessions.get(name, {}).get("title") or "")
        return f"{shown} {title}" if shown else "It has no pull request yet."

    def action_stop(self) -> None:
        """End its agent, if that is meant."""
        if session := self._chosen():
            name = str(session["id"])
            more = "Everything unsaved is saved first, its workspace is removed then; r brings it back."
            self.sure(f"Stop {name}?", more, lambda ao: actions.stop(ao, name))

    def action_restore(self) -> None:
        """Bring it back."""
        if session := self._chosen():
            name = str(session["id"])
            self.do(lambda ao: actions.restore(ao, name))

    def action_keys(self) -> None:
        """What there is to press."""
        lines = [Text(f"{key:<10} {what}") for key, what in KEYS]
        self.ask(Dialog("Keys", lines, {"q": ("back", "")}), lambda _: None)
