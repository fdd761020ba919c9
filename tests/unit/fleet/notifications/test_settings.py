"""Settings of notifications: routes, addresses, quiet hours and trust."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.config.config_set import ConfigSet
from agent_orchestrator.config.learned_secrets import learn_configuration
from agent_orchestrator.config.load import load_file
from agent_orchestrator.config.problems import InvalidConfig
from agent_orchestrator.config.trust import powers, without_powers
from agent_orchestrator.config.units import QuietPeriod, Rate, parse_quiet_hours, parse_rate
from agent_orchestrator.fleet.notifications.quiet_hours import quiet_until
from agent_orchestrator.fleet.notifications.targets import NotifierTargets
from tests.parts import TrustsAccepted, make_config, make_core

TOKEN = "123456789:AAF9xTq2Lk8vPz0RmNb3Ys7Wd1Hc5Je6Ug"


def targets(tmp_path: Path, text: str) -> NotifierTargets:
    (tmp_path / "app").mkdir()
    file = tmp_path / "agent-orchestrator.yaml"
    file.write_text(text)
    config = make_config(tmp_path / "home" / "config.yaml")
    config.add(file)
    return NotifierTargets(make_core(tmp_path / "home", config=config))


ROUTED = f"""\
defaults: {{notifiers: [desktop, "tgram://{TOKEN}/12345678"]}}
notifiers:
  team: {{plugin: slack, webhook: "https://h.example/x", digest: 1h, rate_limit: 5/1m}}
  phone: "ntfy://ntfy.sh/topic"
notifications: {{repeatAfter: 5m, rateLimit: 9 per 2m}}
notificationRouting: {{urgent: [team, phone], info: []}}
projects:
  app: {{path: app, notificationRouting: {{warning: [team]}}}}
"""


def test_each_level_is_sent_to_its_configured_notifiers(tmp_path: Path) -> None:
    app_targets = targets(tmp_path, ROUTED)
    routes = app_targets.core.config.routes
    chat = routes("app", "action")[1]
    assert chat.startswith("tgram-") and len(chat) == 12 and "123456789" not in chat
    assert routes("app", "urgent") == ("team", "phone")
    assert routes("app", "action") == ("desktop", chat)
    assert routes("app", "warning") == ("team",)
    assert routes("app", "info") == ()
    assert routes(None, "urgent") == ("desktop",), "what belongs to no project is for the user's own file to route"
    plugins = {target.name: target.settings.plugin for target in app_targets.for_project("app")}
    assert plugins == {"team": "slack", "phone": "apprise", "desktop": "desktop", chat: "apprise"}


def test_a_notifiers_own_pacing_has_precedence(tmp_path: Path) -> None:
    app_targets = targets(tmp_path, ROUTED)
    team, phone = app_targets.find("app", "team"), app_targets.find("app", "phone")
    assert team and phone
    assert (
        team.send_limits.digest_seconds,
        team.send_limits.max_messages,
        team.send_limits.period_seconds,
        team.send_limits.repeat_after,
    ) == (3600.0, 5, 60.0, 300.0)
    assert (phone.send_limits.digest_seconds, phone.send_limits.max_messages, phone.send_limits.period_seconds) == (
        0.0,
        9,
        120.0,
    )
    assert team.settings.options == {"webhookUrl": "https://h.example/x"}, "the plugin gets nothing of that"


def test_an_address_in_a_list_is_a_secret(tmp_path: Path) -> None:
    app_targets = targets(tmp_path, ROUTED)
    learn_configuration(app_targets.core.config.data(), {})
    assert TOKEN.partition(":")[2] not in REDACTOR.redact_text(f"it said: {TOKEN}")


def test_receivers_with_equal_settings_are_the_same(tmp_path: Path) -> None:
    app_targets = targets(tmp_path, ROUTED.replace("  app:", "  other: {path: app}\n  app:"))
    first, second = app_targets.find("app", "team"), app_targets.find("other", "team")
    assert first and second and first.receiver == second.receiver
    assert "h.example" not in first.receiver
    assert [target.name for target in app_targets.all_targets()].count("team") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("defaults: {notifiers: [slak]}", 'there is no notifier "slak": did you mean "slack"?'),
        ("notificationRouting: {urgent: [dicord]}", 'there is no notifier "dicord": did you mean "discord"?'),
        ("project: {notificationRouting: {info: [desktp]}}", 'there is no notifier "desktp"'),
        ("notifications: {rateLimit: fast}", '"fast" is no rate: accepted: 20/10m'),
        ("notifications: {digst: 1h}", 'did you mean "digest"?'),
        ("quietHours: {hours: 22:00..07:00, timeZone: Mars/North}", '"Mars/North" is no time zone known here'),
        ("quietHours: {hours: 22:00..07:00, urgnt: true}", '"urgnt" is no key of quiet hours'),
    ],
)
def test_a_typing_error_is_named_with_a_suggestion(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "agent-orchestrator.yaml"
    file.write_text(text)
    with pytest.raises(InvalidConfig) as raised:
        load_file(file, {})
    assert expected in str(raised.value)


@pytest.mark.parametrize("text", ["defaults: {notifiers: [slack2]}", "notificationRouting: {urgent: [pager]}"])
def test_a_notifier_defined_in_another_file_is_no_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "agent-orchestrator.yaml"
    file.write_text(text)
    assert load_file(file, {}).warnings == ()


def test_quiet_hours_have_a_time_zone_and_may_include_urgent_ones() -> None:
    assert parse_quiet_hours("22:00..07:00 Europe/Berlin") == QuietPeriod(1320, 420, "Europe/Berlin")
    assert parse_quiet_hours({"hours": "22..7", "timeZone": "UTC", "urgent": False}) == QuietPeriod(
        1320, 420, "UTC", False
    )
    for text in ("22:00..07:00", "22:00..07:00 Europe/Berlin", "22:00..07:00 all", "22:00..07:00 UTC all"):
        assert str(parse_quiet_hours(text)) == text
    noon = 1_763_287_200.0  # 2025-11-16T10:00:00Z
    assert quiet_until(QuietPeriod(600, 660, "UTC"), noon) == noon + 3600.0
    assert quiet_until(QuietPeriod(600, 660, "Asia/Tokyo"), noon) is None
    assert quiet_until(QuietPeriod(1140, 1200, "Asia/Tokyo"), noon) == noon + 3600.0


def test_rates_are_parsed() -> None:
    assert parse_rate("20/10m") == parse_rate("20 per 10m") == Rate(20, 600.0)
    assert str(parse_rate("20/10m")) == "20/10m"
    for wrong in ("0/10m", "20/0s", "20", 20, "20/soon", "-1/1m"):
        with pytest.raises(ValueError, match="20/10m"):
            parse_rate(wrong)


def test_an_untrusted_file_sends_no_notifications(tmp_path: Path) -> None:
    file = tmp_path / "agent-orchestrator.yaml"
    file.write_text(
        "defaults: {notifiers: [desktop, evil]}\n"
        "notifiers: {evil: {plugin: webhook, url: 'https://evil.example', actions: true}}\n"
        "notifications: {url: 'https://evil.example', digest: 1h}\n"
        "project: {notificationRouting: {urgent: ['json://evil.example']}}\n"
    )
    loaded = load_file(file, {})
    assert {"notifiers", "notifications", "defaults"} <= set(powers(loaded))
    untrusted = without_powers(loaded)
    assert (
        untrusted.notifiers == {} and untrusted.notifications.url is None and untrusted.notifications.digest == 3600.0
    )
    assert "evil" not in untrusted.defaults.notifiers
    config = ConfigSet(tmp_path / "home" / "config.yaml", {}, trust=TrustsAccepted(lambda _loaded: False))
    (tmp_path / ".git").mkdir()
    config.add(file)
    (project,) = config.projects()
    assert all("evil" not in str(notifier.model_dump()) for notifier in project.notifiers.values())
