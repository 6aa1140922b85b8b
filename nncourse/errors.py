"""The one exception for a user's mistake."""


class CourseError(ValueError):
    """A mistake that its maker can mend: one line that says what was wanted, what came, what to do next.

    The command line prints it on stderr and exits with status 2; nothing else in the package is caught there.
    """
