"""What is refused, in one line."""

import pytest

from nnclassroom.commands import main
from nncourse.errors import CourseError


def refused(call, *arguments, kind: type[CourseError] = CourseError, **options) -> str:
    """The message of the error of this kind that the call must raise."""
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def command_refused(capsys, words: list[str]) -> str:
    """The line that a command says which must end with status 2."""
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error
