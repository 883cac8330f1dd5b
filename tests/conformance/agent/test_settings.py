"""Settings of agent.toml that are accepted for what is to come."""

from daemons import Daemon


def test_settings_without_effect_are_named_at_every_start(plane):
    """A host that has one starts all the same, and says each time that it does nothing."""
    settings = {
        "proxy": "http://proxy.example:3128",
    }
    daemon = Daemon(plane, plane.token())
    daemon.dir.mkdir(mode=0o700)
    (daemon.dir / "agent.toml").write_text("".join(f'{key} = "{value}"\n' for key, value in settings.items()))
    try:
        for start in (1, 2):
            daemon.start().wait_connected()
            daemon.stop()
            said = daemon.log()
            for key in settings:
                assert said.count(f"the setting `{key}` has no effect") == start, said
    finally:
        daemon.stop()
        daemon.note_secrets()
