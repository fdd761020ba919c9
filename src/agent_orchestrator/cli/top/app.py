"""The full-screen app: what is on the screen, and the actions of the keys."""

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
from agent_orchestrator.cli.sessions.status_table import Session, pull_request_text
from agent_orchestrator.cli.top import actions, layout
from agent_orchestrator.cli.top.board_state import (
    BoardState,
    Question,
    SessionFilter,
    arrange_columns,
    choose_selection,
    move_selection,
)
from agent_orchestrator.cli.top.feed import BoardFeed, ScreenPoller
from agent_orchestrator.cli.top.keys import (
    BOARD_ACTIONS,
    BOARD_KEYS,
    CHANGE_KEYS,
    DECISIONS,
    KEY_HELP,
    YES_NO_KEYS,
    key_hints,
)
from agent_orchestrator.cli.top.widgets import ModalDialog, StaticLines, TextField
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import AoError

REDRAW_INTERVAL = 10.0
"""Seconds between two redraws because of the ages."""
SUCCESS_SECONDS = 15.0
"""Seconds that a message of success is shown."""

_STATIC_STATES = ("queued", "exited", "failed", "interrupted")
"""States in which a session's terminal does not change."""

Action = Callable[[DaemonClient], str]


class _StatusMessage(NamedTuple):
    """The last message shown to the person."""

    text: str
    is_error: bool
    at: datetime

    def line(self, width: int, now: datetime) -> Text:
        """Return the message as a line; errors stay until the next message, others disappear after a while."""
        if self.is_error:
            return Text(out.truncate(f"error: {self.text}", width), "bold red")
        return Text(out.truncate(self.text, width) if (now - self.at).total_seconds() < SUCCESS_SECONDS else "")


class BoardStateChanged(Message):
    """Posted when the state of the sessions has changed."""


class ActionDone(Message):
    """Posted with the result of an action."""

    def __init__(self, text: str, *, is_error: bool = False, then: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.text = text
        self.is_error = is_error
        self.then = then


class ScreenReceived(Message):
    """Posted with the screen of a session's terminal."""

    def __init__(self, session: str, text: str) -> None:
        super().__init__()
        self.session = session
        self.text = text


class Top(App[None]):
    """The board of one project, or of all."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; overflow: hidden; }
    #header, #status, #keys, #rule { height: 1; }
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
        connect: Callable[[], DaemonClient] = lambda: DaemonClient(start=False),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        here: Callable[[Sequence[str], bool], str] = actions.run_here,
    ) -> None:
        """Create the app; `connect` makes a client for each thread, `here` runs a command on this terminal."""
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.animation_level = "none"
        self.project = project
        self.session_filter = SessionFilter("", project)
        self.board_state = BoardState()
        self.unreachable_reason = ""
        self.selected: str | None = None
        self.is_preview_visible = True
        self._connect, self._now, self._run_here = connect, now, here
        self._offsets: dict[str, int] = {}
        self._card_order: list[str] = []
        self._board_drawing = layout.Drawing()
        self._screens: dict[str, str] = {}
        self._status = _StatusMessage("", False, now())
        self._held_keys: list[events.Key] | None = None
        """Keys after an Enter that a text field has not handled yet; None if there is no such Enter."""
        self._feed = BoardFeed(connect(), lambda: self._post(BoardStateChanged()))
        self._screen_poller = ScreenPoller(connect(), lambda session, text: self._post(ScreenReceived(session, text)))

    @property
    def defect(self) -> Exception | None:
        """The exception that ended the app, or None."""
        return self._exception

    def _fatal_error(self) -> None:
        """End without a traceback; the caller prints the defect in one line."""
        self._close_messages_no_wait()

    # -- the screen ----------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Yield the parts of the screen from top to bottom."""
        for name in ("header", "board", "rule", "preview", "status"):
            yield StaticLines(name)
        yield Input(
            placeholder="words, status:, project:, agent:, column:", id="filter", select_on_focus=False, disabled=True
        )
        yield StaticLines("keys")

    def on_mount(self) -> None:
        """Start the threads and the redraw timer."""
        self.set_interval(REDRAW_INTERVAL, self.redraw)
        self._feed.start()
        self._screen_poller.start()

    def on_unmount(self) -> None:
        """Stop the threads."""
        self._feed.end()
        self._screen_poller.end()

    def on_resize(self, event: events.Resize) -> None:
        """Set the height of each part."""
        self._set_heights(event.size.height)

    def on_static_lines_sized(self) -> None:
        """Redraw for the new size."""
        self.redraw()

    def on_board_state_changed(self, message: BoardStateChanged) -> None:
        """Show the new state of the sessions."""
        message.stop()
        was_away = self.unreachable_reason
        self.board_state, self.unreachable_reason = self._feed.latest()
        if was_away and not self.unreachable_reason:
            self.show_status("the daemon is back")
        self.redraw()

    def on_screen_received(self, message: ScreenReceived) -> None:
        """Show the new screen."""
        message.stop()
        self._screens = {message.session: message.text}
        self.redraw()

    def on_action_done(self, message: ActionDone) -> None:
        """Show the result of an action, then run what follows it."""
        message.stop()
        self.show_status(message.text, is_error=message.is_error)
        if message.then:
            message.then()

    def show_status(self, text: str, *, is_error: bool = False) -> None:
        """Show one line to the person until the next one."""
        self._status = _StatusMessage(out.one_line(text), is_error, self._now())
        self.redraw()

    def redraw(self) -> None:
        """Draw everything that changed."""
        if not self.is_running or not self.screen_stack:
            return
        columns = arrange_columns(self.board_state, self.session_filter)
        self.selected = choose_selection(columns, self.selected, self._card_order)
        self._card_order = [card.id for cards in columns.values() for card in cards]
        board, width = self._lines("board"), self.size.width
        self._board_drawing = layout.draw_board(
            columns, self.selected, (width, board.size.height), self._now(), self._offsets
        )
        board.show(self._board_drawing.lines if self._card_order else [Text(out.truncate(self._empty_text(), width))])
        header = layout.header_line(
            self.board_state, columns, self.project, self.session_filter.text, self.unreachable_reason, width
        )
        self._lines("header").show([header])
        self._lines("status").show([self._status.line(width, self._now())])
        self._lines("rule").show([layout.separator_line(self._board_drawing.hidden_text, width)])
        self._lines("keys").show([layout.key_line(key_hints((self._session() or {}).get("runtime")), width)])
        self._draw_preview()

    def _draw_preview(self) -> None:
        session, preview = self._session(), self._lines("preview")
        is_live = (
            session is not None and session.get("column") != "Done" and session.get("status") not in _STATIC_STATES
        )
        self._screen_poller.watch(
            self.selected if self.is_preview_visible and not self.unreachable_reason else None, is_live=is_live
        )
        lines = []
        if session is not None:
            screen = self._screens.get(str(session["id"]))
            size = (self.size.width, preview.size.height)
            lines = layout.preview_lines(
                session, self.board_state.questions_of(str(session["id"])), screen, size, self._now()
            )
        preview.show(lines)

    def _empty_text(self) -> str:
        if not self.board_state.is_ready:
            return "…"
        if self.session_filter.text:
            return f"Nothing matches {out.one_line(self.session_filter.text)}: Esc takes the filter away."
        return 'No sessions here. Start one: ao new "what is to be done"'

    def _set_heights(self, height: int) -> None:
        is_shown = self.is_preview_visible and height >= 12
        self._lines("rule").display = self._lines("preview").display = is_shown
        self._lines("preview").styles.height = max(4, height // 3)

    def _lines(self, name: str) -> StaticLines:
        return self.screen_stack[0].query_one(f"#{name}", StaticLines)

    def _session(self) -> Session | None:
        return self.board_state.sessions.get(self.selected or "")

    def _post(self, message: Message) -> None:
        if self.is_running:
            self.post_message(message)

    # -- keys ----------------------------------------------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        """Give keys to an open dialog first, and hold those after an Enter until it is handled."""
        if isinstance(event, events.Key) and not event.is_forwarded:
            if self._held_keys is not None:
                self._held_keys.append(event)
                return
            dialog = self.screen if self.screen_stack and isinstance(self.screen, ModalDialog) else None
            if dialog and dialog.consume_key(event):
                return
            if event.key == "enter" and isinstance(self.focused, TextField | Input):
                self._held_keys = []
        await super().on_event(event)

    async def _release_held_keys(self) -> None:
        """Handle the keys that were held until the Enter was handled."""
        keys, self._held_keys = self._held_keys or [], None
        for key in keys:
            await self.on_event(key)

    async def on_text_field_done(self, message: TextField.Done) -> None:
        """Answer the dialog with the submitted text."""
        if message.text.strip() and isinstance(self.screen, ModalDialog):
            self.screen.answer(message.text)
        await self._release_held_keys()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's shape
        """Disable the board's keys while a dialog is open or a filter is typed."""
        if action not in BOARD_ACTIONS:
            return True
        if isinstance(self.screen, ModalDialog):
            return False
        return self.screen.focused is None or action == "unfilter"

    # -- moving and filtering ------------------------------------------------------------------------------------------

    def action_move(self, across: int, down: int) -> None:
        """Select another session."""
        self.selected = move_selection(
            arrange_columns(self.board_state, self.session_filter), self.selected, across, down
        )
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        """Select the clicked session."""
        board = self._lines("board")
        if event.widget is board and (session := self._board_drawing.session_at(event.x, event.y)):
            self.selected = session
            self.redraw()

    def on_mouse_scroll_down(self) -> None:
        """Select the next session."""
        self.action_move(0, 1)

    def on_mouse_scroll_up(self) -> None:
        """Select the previous session."""
        self.action_move(0, -1)

    def action_preview(self) -> None:
        """Show or hide the terminal."""
        self.is_preview_visible = not self.is_preview_visible
        self._set_heights(self.size.height)
        self.redraw()

    def action_filter(self) -> None:
        """Open the filter field."""
        field = self._show_filter_field(True)
        field.value = self.session_filter.text
        field.cursor_position = len(field.value)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter the sessions while typing."""
        if self.focused is event.input:
            self._filter(event.value)

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Apply the filter and return to the board."""
        self._filter(event.value)
        self._show_filter_field(False)
        await self._release_held_keys()

    def action_unfilter(self) -> None:
        """Show all sessions again."""
        self._filter("")
        self._show_filter_field(False)

    def _show_filter_field(self, is_on: bool) -> Input:
        field = self.query_one("#filter", Input)
        field.display, field.disabled = is_on, not is_on
        self._lines("status").display = not is_on
        self.screen.set_focus(field if is_on else None)
        return field

    def _filter(self, text: str) -> None:
        self.session_filter = SessionFilter(text, self.project)
        self.redraw()

    # -- what is done to a session -------------------------------------------------------------------------------------

    def _require_session(self) -> Session | None:
        session = self._session()
        if session is None:
            self.show_status("no session is selected", is_error=True)
        return session

    def run_in_thread(self, action: Action, then: Callable[[], None] | None = None) -> None:
        """Run an action in its own thread and show its result."""

        def work() -> None:
            try:
                with self._connect() as ao:
                    self._post(ActionDone(action(ao), then=then))
            except AoError as error:
                self._post(ActionDone(str(error), is_error=True))
            except Exception as error:  # a defect is shown like any error; the board goes on
                self._post(ActionDone(f"unexpected {type(error).__name__}: {error}", is_error=True))

        threading.Thread(target=work, daemon=True).start()

    def confirm(self, question: str, details: str, action: Action) -> None:
        """Run the action if the person answers yes."""
        self.push_screen(
            ModalDialog(
                out.one_line(question), [Text(out.one_line(details))], YES_NO_KEYS, lambda _: self.run_in_thread(action)
            )
        )

    def action_attach(self) -> None:
        """Attach to the selected session's terminal here."""
        if session := self._require_session():
            self._run_command_here("attach", str(session["id"]))

    def action_edit(self) -> None:
        """Open the selected session's workspace in the editor."""
        if session := self._require_session():
            self._run_command_here("open", str(session["id"]), "--editor")

    def _run_command_here(self, *argv: str) -> None:
        """Run an `ao` command on this terminal, then return to the board."""
        if self.is_headless:
            problem = self._run_here(actions.ao_command(*argv), self.no_color)
        else:
            with self.suspend():
                problem = self._run_here(actions.ao_command(*argv), self.no_color)
        self.show_status(problem or f"back from {argv[1]}", is_error=bool(problem))
        self.redraw()

    def action_open(self) -> None:
        """Open the selected session in a new window."""
        if session := self._require_session():
            name = str(session["id"])
            self.run_in_thread(lambda _: actions.open_window(name))

    def action_send(self) -> None:
        """Send a message to the selected session."""
        if session := self._require_session():
            self.send(str(session["id"]))

    def send(self, name: str) -> None:
        """Ask for a message and send it to a session."""
        self.push_screen(
            ModalDialog(
                f"Message to {name}",
                [],
                {},
                lambda text: self.run_in_thread(lambda ao: actions.send(ao, name, text)),
                has_text_field=True,
            )
        )

    def action_answer(self) -> None:
        """Answer the selected session's oldest question."""
        if session := self._require_session():
            questions = self.board_state.questions_of(str(session["id"]))
            if questions:
                self._answer(str(session["id"]), questions[0])
            else:
                self.show_status(f"{session['id']} asks nothing; s sends it a message")

    def _answer(self, name: str, question: Question) -> None:
        kind = str(question.get("kind"))
        title = f"{name} asks ({kind}, {out.age(question.get('since'), self._now())})"
        body = [Text(out.one_line(line), "dim") for line in question.get("context") or ()]
        body += [Text(line, "bold") for line in layout.clean_lines(question.get("text") or "")]
        if reason := (question.get("permission") or {}).get("reason"):
            body.append(Text(f"why: {out.one_line(reason)}"))

        def post_answer(decision: str, text: str) -> None:
            self.run_in_thread(lambda ao: actions.answer(ao, name, question, decision, text))

        def on_decision(answer: str) -> None:
            if answer == "text":
                self.push_screen(ModalDialog(title, body, {}, lambda text: post_answer("", text), has_text_field=True))
            else:
                post_answer(answer, "")

        if keys := DECISIONS.get(kind):
            self.push_screen(ModalDialog(title, body, keys, on_decision))
        else:
            self.push_screen(ModalDialog(title, body, {}, lambda text: post_answer("", text), has_text_field=True))

    def action_diff(self) -> None:
        """Show the selected session's change for review."""
        if not (session := self._require_session()):
            return
        name = str(session["id"])
        change: list[tuple[str, str]] = []

        def read(ao: DaemonClient) -> str:
            change.extend(actions.change_lines(ao, name))
            return ""

        def show() -> None:
            lines = [Text(text, style) for text, style in change]
            self.push_screen(
                ModalDialog(
                    f"{name}: its change",
                    lines,
                    CHANGE_KEYS,
                    lambda key: self._act_on_change(name, key),
                    is_full_screen=True,
                )
            )

        self.run_in_thread(read, show)

    def _act_on_change(self, name: str, key: str) -> None:
        {"approve": self.approve, "changes": self.changes, "merge": self.merge, "send": self.send}[key](name)

    def action_approve(self) -> None:
        """Approve the selected session's change."""
        if session := self._require_session():
            self.approve(str(session["id"]))

    def approve(self, name: str) -> None:
        """Approve a session's change after a confirmation."""
        self.confirm(
            f"Approve the change of {name}?",
            self._pull_request_summary(name),
            lambda ao: actions.review(ao, name, "approved", ""),
        )

    def action_changes(self) -> None:
        """Request changes from the selected session."""
        if session := self._require_session():
            self.changes(str(session["id"]))

    def changes(self, name: str) -> None:
        """Ask what to change and request it from a session."""
        self.push_screen(
            ModalDialog(
                f"What is to change in {name}?",
                [],
                {},
                lambda text: self.run_in_thread(lambda ao: actions.review(ao, name, "changes_requested", text)),
                has_text_field=True,
            )
        )

    def action_merge(self) -> None:
        """Merge the selected session's change."""
        if session := self._require_session():
            self.merge(str(session["id"]))

    def merge(self, name: str) -> None:
        """Merge a session's change after a confirmation."""
        base = self.board_state.sessions.get(name, {}).get("base")
        self.confirm(
            f"Merge the change of {name} into {base}?",
            self._pull_request_summary(name),
            lambda ao: actions.merge(ao, name),
        )

    def _pull_request_summary(self, name: str) -> str:
        pull_request = pull_request_text(self.board_state.sessions.get(name, {}))
        title = out.one_line(self.board_state.sessions.get(name, {}).get("title") or "")
        return f"{pull_request} {title}" if pull_request else "It has no pull request yet."

    def action_stop(self) -> None:
        """Stop the selected session after a confirmation."""
        if session := self._require_session():
            name = str(session["id"])
            details = "Everything unsaved is saved first, its workspace is removed then; r brings it back."
            self.confirm(f"Stop {name}?", details, lambda ao: actions.stop(ao, name))

    def action_restore(self) -> None:
        """Restore the selected session."""
        if session := self._require_session():
            name = str(session["id"])
            self.run_in_thread(lambda ao: actions.restore(ao, name))

    def action_keys(self) -> None:
        """Show the keys."""
        lines = [Text(f"{key:<10} {what}") for key, what in KEY_HELP]
        self.push_screen(ModalDialog("Keys", lines, {"q": ("back", "")}, lambda _: None))
