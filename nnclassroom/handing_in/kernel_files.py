"""The file with an answer: its name, and the launch of a CUDA kernel, which the first line of the file specifies."""

import re
from typing import Any

from nnclassroom.exercises import exam_operations as definitions
from nnclassroom.exercises.hints import Exercise
from nnclassroom.notebook import cuda_cell, exams
from nncourse.errors import CourseError
from nncourse.kernels.operation import Operation

FIRST_LINE = re.compile(r"// %%cuda\s+(.*)")


def file_of(exercise: Exercise) -> str:
    """The name of the file with an answer."""
    return f"{exercise.key}.{'cu' if exams.is_cuda(exercise.kernel) else 'py'}"


def launch_of(operation: Operation, kernel: str, text: str, definitions_text: str = "") -> dict[str, Any]:
    """How a kernel is launched, according to the first line of its text: `// %%cuda sigmoid naive --block 256`.

    definitions_text: defines an examination's operations. CourseError if the first line names another exercise.
    """
    first = FIRST_LINE.match(text)
    options = cuda_cell.parsed(first[1] if first else f"{operation.name} {kernel}")
    named = definitions.find(options.operation, definitions_text).name
    if (named, options.kernel) != (operation.name, kernel):
        raise CourseError(f"its first line names another exercise, {options.operation} {options.kernel}")
    return cuda_cell.launch_options(operation, options)
