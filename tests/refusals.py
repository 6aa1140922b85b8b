"""What is refused, in one line."""

import pytest

from nncourse.errors import CourseError


def refused(call, *arguments, kind: type[CourseError] = CourseError, **options) -> str:
    """The message of the error of this kind that the call must raise."""
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message
