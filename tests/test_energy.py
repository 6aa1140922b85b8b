"""Energy from counters: fake ones with a fake clock, files like RAPL's, and a real GPU's where there is one."""

import math
import os
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from refusals import refused

from nncourse import device
from nncourse.parallel import energy
from nncourse.parallel.energy import Energy, Meter, edp, energy_of, idle_power, measured
from nncourse.threads import Load


class Machine:
    """A clock that moves when it is told to, and devices that take so many watts meanwhile."""

    def __init__(self, *watts, most=0.0, step=0.0):
        self.now, self.watts, self.joules, self.most, self.step = 100.0, list(watts), [7.0] * len(watts), most, step

    def meters(self):
        return [Meter(f"device {n}", "gpu", lambda n=n: self.read(n), self.most, n) for n in range(len(self.watts))]

    def read(self, n):
        joules = self.joules[n] % self.most if self.most else self.joules[n]
        return joules // self.step * self.step if self.step else joules

    def wait(self, seconds):
        self.now += seconds
        self.joules = [joules + watts * seconds for joules, watts in zip(self.joules, self.watts, strict=True)]

    def clock(self):
        return self.now


def test_the_energy_of_a_block_with_and_without_what_idle_devices_take():
    machine = Machine(300.0, 80.0)
    with measured(machine.meters(), idle=[70.0, None], every=60, clock=machine.clock) as found:
        machine.wait(2.5)
    first, second = found.energies
    assert (first.joules, first.seconds, first.watts) == pytest.approx((750, 2.5, 300))
    assert first.above_idle == pytest.approx(750 - 70 * 2.5) and second.above_idle is None
    assert edp(found.energies) == pytest.approx(2.5 * (750 + 200))
    assert "750 J" in str(first) and "above idle" in str(first) and "above idle" not in str(second)


def test_what_was_measured_before_an_exception_is_there_and_no_thread_goes_on():
    machine = Machine(100.0)
    with pytest.raises(ZeroDivisionError), measured(machine.meters(), every=60, clock=machine.clock) as found:
        machine.wait(1)
        1 / 0  # noqa: B018
    assert found.energies[0].joules == pytest.approx(100)
    count = len(found.times)
    time.sleep(0.02)
    assert len(found.times) == count


def test_readings_over_time_give_the_power_and_a_counter_may_begin_again():
    machine = Machine(50.0, most=64.0)
    with measured(machine.meters(), every=0.002, clock=machine.clock) as found:
        for watts in (50.0, 200.0):
            machine.watts = [watts]
            for _ in range(10):
                machine.wait(0.1)
                before = len(found.times)
                while len(found.times) < before + 2:  # the thread has read since
                    time.sleep(0.001)
    assert found.energies[0].joules == pytest.approx(50 + 200)
    times, (watts,) = found.power()
    assert len(times) == len(watts) and times == sorted(times)
    assert watts[0] == pytest.approx(50) and watts[-1] == pytest.approx(200)


def test_idle_power_is_what_the_counter_says_of_two_seconds_without_work():
    machine = Machine(78.0, 16.0)
    assert idle_power(machine.meters(), sleep=machine.wait, every=60, clock=machine.clock) == pytest.approx([78, 16])
    assert machine.now == pytest.approx(102)


def test_where_others_compute_on_a_device_its_idle_power_is_not_known(monkeypatch):
    machine, gone = Machine(300.0, 16.0, 90.0), Machine(78.0)
    busy = [replace(meter, in_use=lambda n=n: (0.6, 0.0, 0.0)[n]) for n, meter in enumerate(machine.meters())]
    busy[2] = replace(busy[2], kind="cpu")
    monkeypatch.setattr(energy.threads, "since", lambda before: Load(2.0, 2.0, 4))  # one core of four
    idle = idle_power(busy, sleep=machine.wait, every=60, clock=machine.clock)
    assert idle[1] == pytest.approx(16) and math.isnan(idle[0]) and math.isnan(idle[2])
    with measured(busy, idle=idle, every=60, clock=machine.clock) as found:
        machine.wait(2.0)
    first, second, _ = found.energies
    assert first.above_idle is None and "idle was not idle" in str(first) and second.above_idle == pytest.approx(0)
    with measured(gone.meters(), idle=[89.0], every=60, clock=gone.clock) as found:  # others have ended since
        gone.wait(1.0)
    (first,) = found.energies
    assert first.above_idle is None and "idle was not idle" in str(first) and "-11" not in str(first)


def test_short_work_is_repeated_until_the_steps_of_the_counter_hardly_matter():
    machine = Machine(400.0, step=40.0)  # renewed every 0.1 s
    (found,), calls = energy_of(lambda: machine.wait(0.01), machine.meters(), every=60, clock=machine.clock)
    assert calls >= 200 and found.seconds == pytest.approx(0.01)
    assert found.joules == pytest.approx(4.0, rel=0.05)
    (found,), calls = energy_of(lambda: machine.wait(30), machine.meters(), every=60, clock=machine.clock)
    assert calls == 1 and found.joules == pytest.approx(12_000, rel=0.01)


def test_without_a_counter_there_is_no_number():
    assert "not measurable here" in refused(energy_of, lambda: None, [])
    assert Energy("x", "gpu", 0, 5.0, 2.0).above_idle is None


def rapl(folder, **files):
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")


def test_the_counters_of_processor_packages_are_read_and_their_parts_are_not_counted_twice(tmp_path):
    for number in range(2):
        package = tmp_path / f"intel-rapl:{number}"
        rapl(package, name=f"package-{number}", energy_uj=5_000_000 * number, max_energy_range_uj=262_143_328_850)
        rapl(tmp_path / f"intel-rapl:{number}:0", name="core", energy_uj=1, max_energy_range_uj=2)
    meters, said = energy.cpu_meters(tmp_path)
    assert [meter.name for meter in meters] == ["CPU package-0", "CPU package-1"] and not said
    assert meters[1].read() == 5 and meters[1].range == pytest.approx(262143.32885)
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("8000000")
    assert meters[1].read() == 8


@pytest.mark.parametrize("harm", ["nothing there", "no number", "not for us"])
def test_what_cannot_be_read_is_said_not_to_be_measurable(tmp_path, harm):
    package = tmp_path / "intel-rapl:0"
    if harm != "nothing there":
        rapl(package, name="package-0", energy_uj="" if harm == "no number" else 7, max_energy_range_uj=9)
    if harm == "not for us":
        if os.name != "posix" or os.geteuid() == 0:
            (package / "energy_uj").unlink()
        else:
            (package / "energy_uj").chmod(0)
    meters, said = energy.cpu_meters(tmp_path)
    assert meters == [] and said.startswith("energy of the CPU: not measurable here (")


def test_nvml_counts_a_gpus_joules_and_tells_how_much_of_it_is_in_use(monkeypatch):
    library = SimpleNamespace(
        NVMLError=OSError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetName=lambda handle: b"H200",
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: 1000 * (5 + handle),
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=40 * handle),
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setitem(sys.modules, "cupy", None)
    (first, second), said = energy.gpu_meters()
    assert (first.name, second.name, said) == ("GPU 0, H200", "GPU 1, H200", "")
    assert (first.read(), second.read(), first.in_use(), second.in_use()) == (5, 6, 0, 0.4)


def test_this_machine_has_a_meter_or_a_reason_for_each_kind_of_device():
    meters, missing = energy.meters_here()
    kinds = {meter.kind for meter in meters}
    assert len(kinds) + len(missing) == 2
    assert all("not measurable here" in line for line in missing)
    assert all(meter.read() >= 0 for meter in meters)


@pytest.mark.timed
def test_a_real_gpu_takes_more_while_it_works(gpu):
    meters, said = energy.gpu_meters()
    if not meters:
        pytest.skip(said)
    import cupy

    A = cupy.ones((8192, 8192), cupy.float32)

    def work():
        A @ A
        device.synchronise("gpu")

    work()
    time.sleep(1)
    idle = idle_power(meters)
    found, calls = energy_of(work, meters, idle)
    assert calls > 1 and found[0].watts > 1.3 * idle[0] and found[0].above_idle > 0
