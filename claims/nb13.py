"""The evidence for notebook 13: computations, recorded results, and the thesis."""

import statistics

import numpy as np

from claims import Claim
from nnclassroom.exercises.nb13 import cpu_share, energy_and_edp, rows_for_exchange, scaling_laws
from nnclassroom.figures import nb13 as figures
from nnclassroom.figures import overheads, recorded
from nnclassroom.widgets import laws
from nncourse.parallel import Link, fit_link

THESIS = "source: the Cantabria thesis (2021)"
RESNET, SMALL = laws.NETWORKS


def below_twenty() -> bool:
    far = laws.Settings(p=0.95, devices=laws.MOST, latency=0.0, bandwidth=1e6, batch=100_000)
    return 19 < laws.run(far).strong.max() < 20


def weak_speedup(network: str, latency: float = 10.0, bandwidth: float = 100.0) -> float:
    return float(laws.run(laws.Settings(network, p=1.0, latency=latency, bandwidth=bandwidth)).weak[-1])


def bandwidth_helps_resnet() -> bool:
    more = weak_speedup(RESNET, bandwidth=1000.0) > weak_speedup(RESNET, latency=1.0)
    return more and round(laws.NETWORKS[RESNET].size / 1e6) == 85


def latency_helps_the_small_one() -> bool:
    more = weak_speedup(SMALL, latency=1.0) > weak_speedup(SMALL, bandwidth=1000.0)
    return more and round(laws.NETWORKS[SMALL].size / 1e6, 1) == 0.6


def alone_is_fastest() -> bool:
    curves = laws.run(laws.Settings(SMALL, latency=1000.0))
    return bool(curves.strong.argmax() == 0 and (curves.strong[1:] < 1).all())


def one_half_at_101() -> bool:
    counts = np.array([64, 101, 128, 1024], np.float32)
    strong, _ = scaling_laws["numpy"](0.99, counts)
    E = strong / counts
    return bool(round(float(strong[-1])) == 91 and np.isclose(E[1], 0.5) and E[0] > 0.5 > E[2])


def rows(step: Link, link: Link, devices: int) -> float:
    K = np.array([devices], np.float32)
    known = step.latency, step.bandwidth, link.latency, link.bandwidth, figures.GRADIENT
    return float(rows_for_exchange["numpy"](0.1, *known, K)[0])


def rows_by_hand() -> bool:
    return bool(np.isclose(rows(Link(2e-3, 1e3), Link(0.5e-3, 1e30), 2), 7))


def rows_of_gpus() -> bool:
    (step, link), (count, alone) = figures.exchanges(Link(1, 1), Link(1, 1))["recorded GPUs", 4], (4, 1)
    steps = recorded.shared_steps()
    shares = {each: 1 - steps[alone][each] / steps[count][each] for each in (256, 1024)}
    said = round(rows(step, link, count), -1) == 740 and round(1e6 / step.bandwidth, 1) == 0.1
    return said and 0.19 < shares[256] < 0.22 and 0.095 < shares[1024] < 0.105


def rows_of_processes() -> bool:
    found = overheads.recorded("devices_cpu")
    alone, efficiency = {}, {}
    for size, seconds in found["seconds"].items():
        one, two = seconds["one process"], next(seconds[name] for name in seconds if name.startswith("2 "))
        alone[int(size)] = statistics.median(one)
        efficiency[int(size)] = statistics.median(a / b for a, b in zip(one, two, strict=True))
    exchange = statistics.median(found["exchange"])
    said = rows(fit_link(list(alone), list(alone.values())), Link(exchange / 2, 1e30), 2)
    return round(said) == 136 and round(1e6 * exchange) == 120 and efficiency[64] < 0.9 < efficiency[256]


def idle_watts() -> bool:
    records = overheads.recorded("devices_gpu")["records"]
    idle = [gpu["idle_watts"] for each in records for gpu in each["energies"] if gpu["kind"] == "gpu"]
    return round(min(idle)) == 115 and round(max(idle)) == 131


def made_up_gpu() -> bool:
    return figures.EXAMPLE == (2.5, 1.0, 0.5) and figures.WATTS == (150.0, 120.0, 95.0)


def joules_of_an_epoch() -> bool:
    return bool(np.isclose(figures.example_joules(3.5), 432.5))


def exact_distances() -> bool:
    found = {}
    for distance in (0.25, 0.5, 0.75):
        t = np.arange(round(10.5 / distance) + 1) * distance
        P = figures.example_power(t + 1e-6)[None]
        found[distance] = energy_and_edp["numpy"](t, P, np.zeros(1))[0][0] / figures.example_joules(10.5)
    return abs(found[0.25] - 1) < 1e-3 and abs(found[0.75] - 1) < 1e-3 < abs(found[0.5] - 1)


def the_loop_explains_the_whole() -> bool:
    """With this p the loop's 1.97 makes 1.79 of the whole; a loop of speedup 2 would make more."""
    p, whole = (1 - 1 / 1.79) / (1 - 1 / 1.97), 0.896
    speedups = [1 / (1 - whole + whole / loop) for loop in (1.97, 2)]
    return round(p, 3) == whole and round(speedups[0], 2) == 1.79 < round(speedups[1], 2)


def hybrid_beside_one_gpu() -> bool:
    time = float(cpu_share["numpy"](np.array([12], np.float32), 2)[2][0])
    return round(1 - time, 2) == 0.04 and round(2 / time, 2) == 2.08


CLAIMS = [
    Claim("title", "two GPUs were 1.79 times as fast as one, or 1.97 times", why=THESIS),
    Claim("play-answer", "strong scaling stays below 20.", once=below_twenty),
    Claim("play-answer", "Ten times the bandwidth helps ResNet-34 more: its gradient has 85 MB.",
          once=bandwidth_helps_resnet),
    Claim("play-answer", "A tenth of the latency helps the small network more: its gradient has 0.6 MB",
          once=latency_helps_the_small_one),
    Claim("play-answer", "so for every number of devices, for instance with a latency of 1,000 µs.",
          once=alone_is_fastest),
    Claim("amdahl-words", "where the matrix products became", why="source: notebook 08, whose formula it is"),
    Claim("amdahl-words", "The evaluation took 10 minutes, not 15", why="source: the digits CNN project's report"),
    Claim("amdahl-words", "had taken a third of the time or more.",
          why="derived: whatever they gained, 1/S is at least 1 − p, so p is at least 1 − 1/1.5"),
    Claim("laws-answer", "in the table somewhere between 64 and 128.", once=one_half_at_101),
    Claim("fit-answer", "in it, more devices never make anything slower.",
          why="derived: (1 − p) + p/K falls with K for every p from 0 to 1"),
    Claim("fit-answer", "The thesis's training loop alone was 1.97 times as fast", once=the_loop_explains_the_whole),
    Claim("fit-answer", "validation and test stayed as they were.", why=f"{THESIS}, section 4.3.1"),
    Claim("fit-answer", "since (13b) expects the loop to double its speed.", once=the_loop_explains_the_whole),
    Claim("rows-answer", "so it takes 9 ms.", once=rows_by_hand),
    Claim("rows-answer", "The formula says about 740 rows for the GPUs.", once=rows_of_gpus),
    Claim("rows-answer", "a fifth of the step at 256 rows, and a tenth at 1,024.", once=rows_of_gpus),
    Claim("rows-answer", "it says 136 rows, with their all-reduce of 120 µs.", once=rows_of_processes),
    Claim("rows-answer", "There the efficiency reaches 0.9 somewhere between 64 and 256 rows.",
          once=rows_of_processes),
    Claim("many-answer", "at about a hundred rows each, between 64 and 256 members",
          why="derived: 99 µs and 12 or 16 messages of 59 µs are 97 or 126 rows at 121,133 a second"),
    Claim("small-words", "14 s on the CPU, 19.5 s on the GPU.", why=THESIS),
    Claim("small-words", "It got 90 % right, and TensorFlow 95 %", why=THESIS),
    Claim("small-words", "gets 90 % with the mean of squares",
          why="source: pytorch/small_test.py, 90.3 and 97.4 %; nncourse with the same costs 90.8 and 97.4 %"),
    Claim("precision", "many C programs use `double`, 64 bits with 16 digits.",
          why="definition: IEEE 754, mantissas of 24 and 53 bits"),
    Claim("precision", "multiplies half as many doubles as floats",
          why="source: NVIDIA, CUDA C++ Programming Guide, throughput of arithmetic instructions, 9.0 and 8.6"),
    Claim("idle-words", "idle H200s took 115 to 131 W.", once=idle_watts),
    Claim("edp-look-back", "In the thesis two GPUs took 1.15 MJ and one took 1.17.", why=THESIS),
    Claim("power-words", "An epoch has 2.5 s of training, then 1 s of validation with 95 W.", once=made_up_gpu),
    Claim("power-words", "between 150 and 120 W.", once=made_up_gpu),
    Claim("sampling-words", "three epochs of 432.5 J each.", once=joules_of_an_epoch),
    Claim("share-words", "The thesis tried that, with two GPUs.", why=f"{THESIS}, section 3.3 and figure 3.3"),
    Claim("share-predict", "So the thesis could gain 4 % over its two GPUs.", once=hybrid_beside_one_gpu),
    Claim("share-predict", "Its figure compares with one GPU.", why=f"{THESIS}, figure 3.3"),
    Claim("share-predict", "Two GPUs and the CPU could have been", once=hybrid_beside_one_gpu),
    Claim("try", "Trapezia with 0.25 s are exactly right for the made-up GPU.", once=exact_distances),
    Claim("try-answer", "and so it does with 0.75 s.", once=exact_distances),
]  # fmt: skip
