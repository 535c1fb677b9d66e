"""What the view remembers: read, written back line by line, refused with one clear line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.errors import BadInput
from gpumem_tui.views.tui.settings import Settings, config_path, read, tomllib, write

THEMES, ORDERS = ("dark", "light"), ("card", "size")

settings_ = st.builds(
    Settings,
    theme=st.none() | st.sampled_from(THEMES),
    interval_s=st.none() | st.sampled_from((0.5, 1.0, 2.5, 60.0)),
    ascii=st.none() | st.booleans(),
    mouse=st.none() | st.booleans(),
    low_bandwidth=st.none() | st.booleans(),
    sort=st.none() | st.sampled_from(ORDERS),
)


def of(path) -> Settings:
    return read(path, THEMES, ORDERS)


def test_without_a_file_nothing_is_set(tmp_path):
    assert of(tmp_path / "config.toml") == Settings()


def test_the_file_lies_where_xdg_says_else_under_home():
    assert str(config_path({"XDG_CONFIG_HOME": "/etc/x"})) == "/etc/x/gpumem-tui/config.toml"
    assert str(config_path({"HOME": "/home/ada"})) == "/home/ada/.config/gpumem-tui/config.toml"


def test_a_change_keeps_comments_and_keys_of_other_versions(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('# mine\ntheme = "dark"  # calm\nfuture = [1, 2]\n\n[charts]\ntheme = "other"\n')
    write(path, Settings(theme="light", interval_s=2.0))

    assert path.read_text() == (
        '# mine\ntheme = "light"  # calm\nfuture = [1, 2]\n\ninterval = 2\n[charts]\ntheme = "other"\n'
    )
    assert of(path) == Settings(theme="light", interval_s=2.0)


@given(first=settings_, second=settings_)
def test_what_is_written_is_read_back_and_the_rest_stays(tmp_path_factory, first, second):
    path = tmp_path_factory.mktemp("config") / "gpumem-tui" / "config.toml"
    write(path, first)
    path.write_text(path.read_text() + '[unknown]\nkey = "theme = 1"\n')
    write(path, second)

    assert of(path) == second.over(first)
    assert tomllib.loads(path.read_text())["unknown"] == {"key": "theme = 1"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("theme = ", "cannot be read: "),
        ("theme = 5", "theme = 5 is not one of dark, light"),
        ('theme = "pink"', "theme = 'pink' is not one of dark, light"),
        ("interval = true", "interval = True is not a number from 0.5 to 60"),
        ("interval = nan", "is not a number"),
        ("ascii = 1", "ascii = 1 is not true or false"),
    ],
)
def test_a_bad_file_is_one_clear_line_that_names_it(tmp_path, text, says):
    path = tmp_path / "config.toml"
    path.write_text(text)

    with pytest.raises(BadInput) as error:
        of(path)

    assert str(path) in str(error.value)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@given(st.binary(max_size=200))
def test_whatever_the_file_holds_it_is_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("config") / "config.toml"
    path.write_bytes(data)
    try:
        of(path)
    except BadInput as error:
        assert str(path) in str(error)


# --- on a terminal --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_theme_that_was_chosen_is_there_the_next_time_unless_a_flag_wins(terminal, tmp_path):
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    first = terminal(env=env)
    first.wait_for("allocated")
    first.type("t")
    first.wait_for("theme: light")
    second, flagged = terminal(env=env), terminal("--theme", "mono", env=env)
    for view in (second, flagged):
        view.wait_for("allocated")
        view.pump(0.3)

    assert (tmp_path / "gpumem-tui" / "config.toml").read_text() == 'theme = "light"\n'
    assert b"48;2;251;251;249" in second.raw
    assert b"48;2;" not in flagged.raw


@pytest.mark.slow
def test_a_bad_configuration_is_one_line_in_the_view_and_stays_as_it_is(terminal, tmp_path):
    path = tmp_path / "gpumem-tui" / "config.toml"
    path.parent.mkdir()
    path.write_text("theme = pink\n")
    view = terminal(env={"XDG_CONFIG_HOME": str(tmp_path)}, size=(200, 24))
    view.wait_for("mend or remove it")
    view.type("o")
    view.wait_for("processes by size")

    assert "allocated" in view.text
    assert path.read_text() == "theme = pink\n"


@pytest.mark.slow
def test_without_the_mouse_the_terminal_is_not_asked_for_it(terminal, tmp_path):
    path = tmp_path / "gpumem-tui" / "config.toml"
    path.parent.mkdir()
    path.write_text("mouse = false\n")
    view = terminal(env={"XDG_CONFIG_HOME": str(tmp_path)})
    view.wait_for("allocated")

    assert b"\x1b[?1000h" not in view.raw
    assert b"\x1b[?1003h" not in view.raw
