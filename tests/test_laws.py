"""The widget of Amdahl's and Gustafson's laws: its numbers, its still picture, and the panel without a browser."""

import re

import pytest

from nnclassroom.widgets import laws
from nncourse.errors import CourseError


def test_without_a_network_it_is_the_two_laws():
    curves = laws.run(laws.Settings(p=0.9, devices=10, latency=0, bandwidth=1e12))
    assert curves.devices.tolist() == [1, 2, 4, 8, 10]
    assert curves.strong[-1] == pytest.approx(1 / 0.19, rel=1e-4) and curves.weak[-1] == pytest.approx(9.1, rel=1e-4)


def test_an_exchange_is_the_fastest_of_three_ways_and_the_longer_it_takes_the_less_is_gained():
    settings = laws.Settings(p=1.0, devices=2, latency=1000, bandwidth=1, batch=100)
    curves, size = laws.run(settings), laws.NETWORKS[settings.network].size
    exchange = 2 * (1e-3 + size / 2 / 1e9)  # a ring of two, which sends halves
    assert curves.exchange[1] == pytest.approx(exchange) and curves.exchange[0] == 0
    alone = 100 * laws.NETWORKS[settings.network].seconds
    assert curves.strong[1] == pytest.approx(alone / (alone / 2 + exchange))
    assert curves.weak[1] == pytest.approx(2 * alone / (alone + exchange))


def test_words_name_the_best_number_of_devices():
    one = laws.Settings("784-192-10, on cores", devices=16, latency=50, bandwidth=1)
    assert "one device alone is fastest" in laws.words_of(one, laws.run(one))
    many = laws.Settings(p=1.0, devices=1024, latency=100)
    assert re.search(r"Strong scaling is best with \d+:", laws.words_of(many, laws.run(many)))
    single = laws.Settings(devices=1)
    assert laws.words_of(single, laws.run(single)).startswith("1 device: there is nothing to gain")


@pytest.mark.parametrize("wrong", [{"p": 1.5}, {"devices": 0}, {"bandwidth": 0}, {"batch": 0}, {"network": "AlexNet"}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(CourseError, match="expected"):
        laws.Settings(**wrong)
