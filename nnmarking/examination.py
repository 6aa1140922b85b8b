"""`nncourse handout --exam`: write what students get of an examination, as one .zip or one for each variant."""

from pathlib import Path
from typing import Any

from nnclassroom.exercises import exam_operations as definitions
from nnclassroom.handing_out.notebook_files import language_info, packed, to_bytes
from nnclassroom.notebook import exams
from nnclassroom.zips import refuse_other_name, write_zip
from nncourse.errors import CourseError

TOP = "exam"  # the one folder in the .zip


def write(out: Path, exam: Path, language: str, variants: int = 1) -> str:
    """Write the .zip, or `variants` of them, named exam_1.zip, exam_2.zip, … Returns lines that say what is in them.

    Raises CourseError for a mistake in the examination's file, and for an answer in it that is not right.
    """
    refuse_other_name(out)
    given = exams.read(exam)
    different = {each.key for number in range(1, variants + 1) for each in given.variant(number).questions}
    if not 1 <= variants <= 100:
        raise CourseError(f"expected --variants from 1 to 100; got {variants}")
    if variants > 1 and not any(each.choice for each in given.questions):
        raise CourseError(f'{exam}: --variants needs exercises with choice = "…"; there are none')
    try:
        said = exams.refuse_wrong_answers(given)
    except CourseError as error:
        raise CourseError(f"{exam}: {error}") from None
    for number in range(1, variants + 1):
        one = given.variant(number)
        path = out if variants == 1 else out.with_name(f"{out.stem}_{number}{out.suffix}")
        parts = {"exam.ipynb": to_bytes(_exam_notebook(one)), exams.QUESTIONS: exams.questions(one).encode()}
        write_zip(path, packed(parts, TOP, {"kind": "exam", "language": language}))
        said.append(f"{path}: {given.title}, {len(one.questions)} exercises, without their references")
    if left := [each.key for each in given.questions if each.key not in different]:
        said.append(f"left out of all files: {', '.join(left)}")
    return "\n".join(said)


def _exam_notebook(given: exams.Exam) -> Any:
    """A notebook with the rules, and for each question its description and the cell to fill in."""
    from nbformat import v4

    setup = f'import numpy as np\n\nfrom nnclassroom.notebook.sitting import sit\n\nexercise = sit("{exams.QUESTIONS}")'
    cells = [
        v4.new_markdown_cell(f"# {given.title}\n\n{_rules(given)}", id="title"),
        v4.new_code_cell(setup, id="setup"),
    ]
    for number, each in enumerate(given.questions, 1):
        name = f"q{number}-{each.operation}-{each.kernel}".replace("_", "-")[:56]
        cells.append(v4.new_markdown_cell(_words(given, each), id=f"{name}-words"[:64]))
        cells.append(v4.new_code_cell(_blank(each), id=name))
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    return v4.new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": language_info()})


def _rules(given: exams.Exam) -> str:
    points = sum(each.points for each in given.questions)
    limit = f" You have {given.minutes:g} minutes from your first answer on." if given.minutes else ""
    return (
        f"This examination has {len(given.questions)} exercises and {points:g} points.{limit} Run a cell after each "
        "change. The cell checks the form of your answer, tries the examples (if there are any), and keeps every "
        "answer of the right form. Whether your answers are correct is judged later, with different data. At the end, "
        "run `nncourse submit --out NAME.zip` in this folder, and hand in that file."
    )


def _words(given: exams.Exam, each: exams.Question) -> str:
    operation = definitions.find(each.operation, given.text)
    told = [f"## {each.operation} ({each.kernel}), {each.points:g} points", f"`{operation.formula}`"]
    told += [f"Contract: `{operation.contract}`", each.question, exams.tried(operation)]
    if exams.is_cuda(each.kernel):
        told.append(f"The kernel takes `{', '.join(operation.cuda_arguments)}`.")
    for sample in each.sample:
        given_values = ", ".join(
            f"{name} = {value}" for name, value in zip(operation.names, sample["arguments"], strict=True)
        )
        told.append(f"Example: `{given_values}` gives `{sample['result']}`.")
    return "\n\n".join(filter(None, told))


def _blank(each: exams.Question) -> str:
    """The cell to fill in. A CUDA stub may begin with its own line %%cuda …, which says how it is launched."""
    if not exams.is_cuda(each.kernel):
        return f'@exercise("{each.operation}", kernel="{each.kernel}")\n{each.stub}'
    return each.stub if each.stub.startswith("%%cuda") else f"%%cuda {exams.launch_line(each)}\n{each.stub}"
