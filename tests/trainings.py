"""What tests of training share: an interrupt at a given epoch, and equality bit for bit."""

from collections.abc import Callable
from dataclasses import replace

from nncourse.backend import Backend, choose


def by_steps(name: str) -> Backend:
    """A backend that no plan of fused_epochs takes."""
    return replace(choose(name), fusable=False)


def stop_after(last: int) -> Callable:
    """An on_epoch that presses Ctrl-C."""

    def press(epoch):
        if epoch.number == last:
            raise KeyboardInterrupt

    return press


def same(one: tuple, other: tuple) -> bool:
    """Whether the parameters of two networks and the state and steps of their optimizers are equal bit for bit.

    Each argument begins with a network and its optimizer; what follows is not compared.
    """

    def parts(network, optimizer, *_):
        state = {name: array.tobytes() for name, array in optimizer.state.items()}
        return network.flat_parameters.tobytes(), state, optimizer.steps

    return parts(*one) == parts(*other)
