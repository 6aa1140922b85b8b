"""Judge a student's text that changes a whole network: the judge's process computes what the text asks its `k` for."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnclassroom.judge.answer import TextProcess, process_of
from nnclassroom.judge.answer_process.messages import about_array
from nnclassroom.judge.network_operation import NAMES, OPERATIONS, Asked, NetworkOperation, collected, listed, lists
from nnclassroom.judge.run import Returned
from nnclassroom.judge.verdict import Case, Fault
from nncourse.errors import CourseError


@process_of.register(NetworkOperation)
class NetworkProcess(TextProcess):
    """A process that holds one text, which is called with lists of arrays and a `k`."""

    k = Asked()
    expected: Sequence[str] = ()  # W[0], W[1], …, b[0], …
    replaced: Sequence[str] = ()

    def run(self, case: Case, options: Mapping[str, Any]) -> Returned | Fault:
        network, layers, X, Y, rate = case.arguments
        W, b = lists(layers, network.copy())
        self.k = Asked()
        self.calls += 1
        self.objects = [self.k]
        self.expected, self.replaced = list(listed(W, b)), []
        given = tuple(copy.deepcopy(value) for value in case.arguments)
        blocks: list[bytes] = []
        k = {"object": 0, "methods": list(OPERATIONS), "values": {}, "type": "Backend"}
        arrays = [{"list": [about_array(array, blocks) for array in each]} for each in (W, b)]
        call = {
            "arguments": [*arrays, *(self._about(value, blocks) for value in (X, Y, rate)), k],
            "names": NAMES,
            "results": 1,
            "in_place": self.expected,
            "most_bytes": 4 * max(network.size, len(X) * max(layers.sizes)),
            "again": 0,
        }
        returned = self._called(call, blocks, given)
        if isinstance(returned, Fault):
            return returned
        changed = [name for name in returned.changed if name in ("X", "Y")]
        return collected(case, returned.in_place, self.replaced, changed, self.k)

    def _returned(self, answer: Mapping[str, Any], blocks: list[bytes], given: tuple[Any, ...]) -> Returned | Fault:
        said = answer.get("replaced")  # the text's process may say anything
        self.replaced = [name for name in self.expected if name in said] if isinstance(said, list) else []
        return super()._returned(answer, blocks, given)

    def _raised(self, said: dict[str, Any]) -> Fault:
        """The fault for an exception, with the operation of k that an unknown name may have meant."""
        fault = super()._raised(said)
        if fault.kind == "name" and (meant := [name for name in OPERATIONS if f"'{name}'" in said["text"]]):
            return Fault("forbidden", said | {"said": f"there is no {meant[0]} here: ask k for it, k.{meant[0]}(…)"})
        return Fault(fault.kind, {**fault.facts, "source": said["source"]}) if fault.kind == "forbidden" else fault

    def _ask(self, target: Any, name: str, arguments: list[Any], named: Mapping[str, Any]) -> Any:
        if named:
            raise CourseError(f"k.{name} takes its arguments by their places, without names")
        return self.k.ask(name, *arguments)

    def _about_answer(self, result: Any, arguments: list[Any], blocks: list[bytes]) -> dict[str, Any]:
        if isinstance(result, np.ndarray) and arguments and result is arguments[0]:  # changed in place
            return {"fills": about_array(result, blocks), "returned": True}
        return super()._about_answer(result, arguments, blocks)
