"""A plan's name on disk: it is found again, and where it cannot be used another plan is chosen."""

import os
from dataclasses import dataclass, field

import pytest

from nncourse.kernels.libraries import cudnn
from nncourse.kernels.libraries.cudnn_plans import file_for, keep_name, kept_name, kept_or_chosen

FOR = "forward", (128, 64), "a GPU"  # what a choice depends on


@dataclass
class Graph:
    """In place of cuDNN's graph: the plans' names, the fastest last; some cannot be built."""

    names: tuple[str, ...] = ("slow", "medium", "fast")
    failing: tuple[str, ...] = ()
    built: list[str] = field(default_factory=list)

    def get_execution_plan_count(self):
        return len(self.names)

    def get_plan_name_at_index(self, number):
        return self.names[number]

    def get_workspace_size_plan_at_index(self, number):
        return 0

    def build_plan_at_index(self, number):
        self.built.append(self.names[number])
        if self.names[number] in self.failing:
            raise RuntimeError("no room for this plan")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def start(graph, wrong=(), made_of=FOR):
    """The name of the plan that a new process takes; None if there is none."""
    offer = cudnn.Offer(graph, (), ())

    def is_right(plan):
        return plan.name not in wrong

    def choose():
        plans = [offer.built(number) for number in range(len(offer)) if graph.names[number] not in graph.failing]
        return next((plan for plan in reversed(plans) if is_right(plan)), None)

    plan = kept_or_chosen(file_for(*made_of), lambda name: cudnn.plan_named(offer, name, is_right), choose)
    return plan and plan.name


def test_a_second_process_builds_the_kept_plan_alone():
    first, second = Graph(), Graph(names=("fast", "medium", "slow"))  # offered in another order
    assert start(first) == "fast" and first.built == ["slow", "medium", "fast"]
    assert start(second) == "fast" and second.built == ["fast"]


def test_the_kept_plan_stays_though_another_would_be_chosen_now():
    start(Graph(), wrong=("fast",))
    assert start(Graph()) == "medium"


@pytest.mark.parametrize("made_of", [("backward", *FOR[1:]), (FOR[0], (64, 64), FOR[2]), (*FOR[:2], "another GPU")])
def test_other_sizes_or_another_gpu_have_a_choice_of_their_own(made_of):
    start(Graph(), wrong=("fast",))
    assert start(Graph(), made_of=made_of) == "fast"


@pytest.mark.parametrize(
    ("graph", "wrong"),
    [(Graph(names=("slow", "medium")), ()), (Graph(failing=("fast",)), ()), (Graph(), ("fast",))],
    ids=["not offered", "not built", "not right"],
)
def test_a_kept_plan_that_cannot_be_used_is_chosen_anew_and_replaced(graph, wrong):
    start(Graph())
    assert start(graph, wrong) == "medium"
    assert kept_name(file_for(*FOR)) == "medium"


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"fa", b"fast\n" * 5000], ids=["empty", "binary", "half", "long"]
)
def test_a_damaged_file_is_replaced(content):
    file_for(*FOR).write_bytes(content)
    assert start(Graph()) == "fast"
    assert kept_name(file_for(*FOR)) == "fast"


def test_that_there_is_no_plan_is_not_kept():
    nothing = Graph().names
    assert start(Graph(), wrong=nothing) is None
    assert start(Graph()) == "fast"


def test_processes_that_start_at_once_choose_each_for_itself(folder):
    """Another process finishes its choice during this one's: this one's file remains, complete, and no other file."""
    file, other = file_for(*FOR), cudnn.Offer(Graph(), (), ())

    def choose():
        keep_name(file, "medium")
        return other.built(2)

    assert kept_or_chosen(file, lambda name: None, choose).name == "fast"
    assert [path.read_text() for path in folder.rglob("*") if path.is_file()] == ["fast"]


def test_without_a_folder_each_process_chooses(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    assert file_for(*FOR) is None
    graph = Graph()
    assert start(graph) == start(graph) == "fast" and len(graph.built) == 6


def test_a_file_that_cannot_be_written_is_no_error():
    file_for(*FOR).mkdir()
    assert start(Graph()) == "fast"
