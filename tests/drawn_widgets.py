"""For tests of drawn widgets: another value for each control, and what must change with it."""

import numpy as np

from nnclassroom.widgets import downpour, filter_by_hand, laws, race, simple
from nnclassroom.widgets.widget import BrowserWidget, Control

MADE = {
    "neuron": simple.neuron,
    "activations": simple.activations,
    "descent": simple.descent,
    "threshold": lambda: simple.threshold(np.linspace(0, 1, 50), np.arange(50) // 25),
    "filter_by_hand": filter_by_hand.widget,
    "laws": laws.laws,
    "race": race.race,
    "downpour": downpour.downpour,
}


def another(control: Control, now):
    """A value that the control can take, other than `now`."""
    if control.kind == "menu":
        return next(value for value, _ in control.options if value != now)
    if control.log:
        return control.low * (control.high / control.low) ** 0.3
    value = control.low + 0.7 * (control.high - control.low)
    return round(value) if control.step == 1 else value


def every_control_is_described_and_changes_picture_and_words(drawn: BrowserWidget, same_words=()) -> None:
    """`same_words`: controls that change only the picture."""
    assert drawn.caption and drawn.words
    moved = [name for name, control in drawn.by_name.items() if control.value is not None]
    assert set(moved) == set(drawn.values)
    for name in moved:
        control = drawn.by_name[name]
        assert control.label and control.tip
        before = drawn.frame, drawn.words
        drawn.set(**{name: another(control, drawn.values[name])})
        assert drawn.frame != before[0], name
        assert (drawn.words == before[1]) == (name in same_words), name
